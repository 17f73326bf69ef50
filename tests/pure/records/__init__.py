"""The records: pure functions and values."""
