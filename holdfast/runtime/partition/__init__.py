"""One log partition on a node: its load, its serving, who owns it, and what waits for its log."""
