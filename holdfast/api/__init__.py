"""The calls that a node serves beside Kafka's own: share state and admin, as values and as bytes."""
