"""The worlds of tests: what stands around the part under test, as much of it as a test asks for.

| Module        | Holds                                                                                   |
|---------------|-----------------------------------------------------------------------------------------|
| `samples`     | topics, share partitions, state batches and metadata images that tests of all rooms use |
| `shard`       | one share shard over a log that is a list                                               |
| `service`     | the share service over shards without a log                                             |
| `node`        | the log partitions of a node over the log in memory                                     |
| `pruning`     | one log partition and its pruner over the log in memory                                 |
| `maintenance` | the log partitions of a node with their maintenance                                     |
| `serving`     | a listener on loopback, whose answers a test decides                                    |
"""
