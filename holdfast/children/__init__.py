"""Child processes of a long-running one: their lines, their end, and the pauses before they are started again."""
