"""The snapshot store: entries and manifests of the snapshot topic, what belongs together, and the fold that writes them."""
