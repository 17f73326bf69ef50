"""What monitoring is to know of share groups: records in flight, given up, retried and behind, and how old the oldest one is."""
