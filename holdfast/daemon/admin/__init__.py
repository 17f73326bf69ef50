"""What an admin may ask of a node, and previews of what a change would do."""
