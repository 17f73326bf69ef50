"""The verb that says who logs in."""
