"""The snapshot store as a node uses it: followed, restored from, verified; and the Spark job that a node runs."""
