"""Fixtures of the ring that runs Java."""

from tests.real.shared_kafka import kafka, new_topic, topic

__all__ = ["kafka", "new_topic", "topic"]
