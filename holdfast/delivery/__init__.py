"""The decisions of a leader of share groups: which records go to which member, and what becomes of them.

It is a pure core: no event loop, no Kafka client, no clock, no randomness and no log lines; the time is an argument.

- `group_config`: the configs of a group, by Kafka's names;
- `share_partition`: the records in flight of one group in one partition of a topic;
- `sessions`: the partitions that each member fetches from this node;
- `share_group`: the members of a group, and whether they live;
- `assignment`: the partitions that each member should fetch.
"""
