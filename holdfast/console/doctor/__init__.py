"""The checks of `holdfast doctor`: one small function for each, which knows nothing of the others."""
