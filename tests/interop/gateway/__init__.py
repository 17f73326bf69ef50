"""Stock share consumers as processes of their own, which take records through a node."""
