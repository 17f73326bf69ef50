"""The log partitions of this node: queued, loaded, described, and who owned them before."""
