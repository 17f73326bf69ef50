"""The commands of an admin, and previews of what a change would do."""
