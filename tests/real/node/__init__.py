"""A node on a real broker: start, service, other nodes, the end, and what it does with its topics."""
