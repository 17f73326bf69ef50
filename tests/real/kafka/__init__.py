"""What we take Kafka and its clients for, held against the real ones."""
