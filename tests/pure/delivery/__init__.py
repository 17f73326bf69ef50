"""The pure core of a leader of share groups."""
