"""Fixtures of the ring that needs a real broker."""

from tests.real.shared_kafka import kafka, new_topic, topic

__all__ = ["kafka", "new_topic", "topic"]
