"""Log partitions on their way to another node: who had them, and whether that one still serves them."""
