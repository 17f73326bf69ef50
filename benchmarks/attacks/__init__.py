"""What clients that mean ill cost a node, and those beside them."""
