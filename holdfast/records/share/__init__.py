"""Records of share state: from the bytes of a record to the state of a share partition, in the order in which a reader needs them.

| Module | Contents |
|---|---|
| `keys`, `values`, `batches` | share partitions, snapshots and updates, state batches |
| `codecs/` | their bytes: our own Avro and Apache Kafka's format |
| `combining`, `replay` | how a write changes the batches of a state, and a record the state |
| `pending_runs` | the lazy fold of a log, for loads and for the Spark job |
| `redundant_offsets` | which prefix of a log is not needed any more |
| `deliveries` | deliveries of a state in a few numbers |
| `group_lag` | the lag of share partitions whose end is known, and its sums by group |
| `snapshot_store/` | entries and manifests of the snapshot topic, and the fold that writes them |
"""
