"""Share partitions: the service and its operations, every decision, the state, and how it is loaded."""
