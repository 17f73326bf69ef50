"""Child processes of a long-running one: their lines and their end."""
