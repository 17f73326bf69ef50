"""The log on a real broker: what it keeps when brokers, disks and connections fail."""
