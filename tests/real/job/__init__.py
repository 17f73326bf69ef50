"""The Spark job on a real broker, and what others do with what it wrote."""
