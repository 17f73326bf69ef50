"""Share state and the snapshot topic: loads that restore from it, and the owner's checks of it."""
