"""The command line tool: what stands between a person and a node, or between a person and a log."""
