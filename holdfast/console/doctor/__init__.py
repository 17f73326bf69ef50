"""What `holdfast doctor` looks at: one small function for each check, which knows nothing of the others."""
