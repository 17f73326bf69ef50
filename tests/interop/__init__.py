"""Tests that run Apache Kafka's own Java classes against a coordinator."""
