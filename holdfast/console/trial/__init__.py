"""What one needs to try Holdfast out: a Kafka, a topic, and a node, in one command or each by itself."""
