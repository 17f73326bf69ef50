"""The share partitions that this node leads: their states and records, what they write, when they end, and where new groups begin."""
