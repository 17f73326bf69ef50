"""The node: wire server, share shards and their service, cluster metadata, state topic, settings."""
