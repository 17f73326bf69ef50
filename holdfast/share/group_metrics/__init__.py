"""Metrics of share groups: records in flight, given up, retried and not yet delivered, and the age of the oldest one."""
