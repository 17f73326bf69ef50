"""Micro-benchmarks: microseconds per operation of the pure parts."""
