"""Apache Kafka from a client's side: connections, leaders, metadata, groups' offsets and security properties; the ground floor.

Nothing here knows of share groups, of our log or of the node.
"""
