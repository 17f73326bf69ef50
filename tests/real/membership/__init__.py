"""Members of groups on a real group coordinator."""
