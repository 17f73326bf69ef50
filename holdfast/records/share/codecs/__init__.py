"""Bytes of the values in the log: our own Avro and Apache Kafka's own format."""
