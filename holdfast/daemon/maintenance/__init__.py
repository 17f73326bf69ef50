"""What a node does by the clock, beside serving."""
