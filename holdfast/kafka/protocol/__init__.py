"""Bytes of the Kafka protocol, without I/O: primitives, frames, requests that are made by hand, and what is cut out before kio reads."""
