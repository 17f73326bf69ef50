"""A real Kafka topic as the log of the runtime: batching, sending, fetching, and the event loop around it."""
