"""The Spark job that a node runs, and its metrics."""
