"""The HTTP port of a node: health, metrics and what the command line tool shows, read-only, for programs without a Kafka client."""
