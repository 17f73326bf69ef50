"""Benchmarks of the Spark job."""
