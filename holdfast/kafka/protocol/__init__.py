"""Bytes of the Kafka protocol, without I/O: primitives, frames, and the requests that are made by hand."""
