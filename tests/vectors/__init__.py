"""Answers recorded from Apache Kafka's own classes, and the runner that compares ours with them."""
