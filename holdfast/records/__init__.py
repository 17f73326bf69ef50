"""What is in the log: pure, with no clock, no I/O but the schema files, and no state that outlives a call.

From the bytes of a record to the state of a share partition, in the order in which a reader needs them:

| Module | What it holds |
|---|---|
| `header` | the `hf` header: owner epoch and sequence |
| `checkpoint` | the record by which a node owns a log partition |
| `fencing`, `log_start` | which records count, and where a log is whole from: the rule of every reader |
| `keys`, `values`, `batches` | share partitions, snapshots and updates, state batches |
| `codecs/` | their bytes: our own Avro and Apache Kafka's format; `single_object` is what the Avro ones begin with |
| `combining`, `replay` | how a write changes the batches of a state, and a record the state |
| `pending_runs` | the lazy fold of a log, for loads and for the Spark job |
| `redundant_offsets` | which prefix of a log is not needed any more |
| `deliveries` | what a state says about deliveries, in a few numbers |
| `group_lag` | the lag of share partitions whose end is known, and its sums by group |
| `snapshot_store/` | entries and manifests of the snapshot topic, and the fold that writes them |
| `native/` | twins in C of some functions of the others, in the build that ships |
| `errors` | what can be wrong with bytes |

Values are `NamedTuple`s, because millions of them are made, hashed and compared per minute and a tuple does all three at C
speed; they are as immutable as a frozen dataclass.
"""
