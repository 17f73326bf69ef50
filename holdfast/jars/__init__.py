"""Java and the jars that run on it, fetched once into a cache: Spark's connector to Kafka, and Apache Kafka itself."""
