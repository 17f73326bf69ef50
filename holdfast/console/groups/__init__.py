"""What is held, by group and by share partition, and how far each is: asked of a node, or read from a state topic."""
