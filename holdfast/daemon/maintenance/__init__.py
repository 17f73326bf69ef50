"""The periodic work of a node, beside serving."""
