"""Holdfast: a Kafka-backed coordinator for the delivery state of share groups."""
