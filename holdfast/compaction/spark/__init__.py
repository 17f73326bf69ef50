"""What the job has of Spark, its processes and its file systems."""
