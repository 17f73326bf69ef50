"""Every decoder of bytes that come from outside, given bytes that nobody would send; see `python -m tests.fuzz --help`."""
