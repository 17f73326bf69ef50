"""The decisions of a leader of share groups: which records go to which member, and what becomes of them.

It is a pure core: no event loop, no Kafka client, no clock, no randomness and no log lines; the time is an argument. `share_partition`
holds the records in flight of one group in one partition of a topic.
"""
