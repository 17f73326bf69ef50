"""Settings: declared once, read from file, environment and flags, and described; the log lines of a node."""
