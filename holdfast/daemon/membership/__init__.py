"""The group of nodes: who is a member, which log partitions and duties each has, and what a node does when that changes."""
