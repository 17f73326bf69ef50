"""One log partition on a node: closed, loading, serving or failed."""
