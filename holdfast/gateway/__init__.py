"""The share gateway: stock share consumers take records through a node from the cluster that holds the log."""
