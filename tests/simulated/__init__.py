"""The simulation: one seed is one life of several nodes over the in-memory log."""
