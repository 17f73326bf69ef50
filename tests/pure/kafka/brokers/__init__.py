"""Brokers that tests talk to: over sockets, or as answers alone."""
