"""The worlds of tests: what stands around the part under test, as much of it as a test asks for.

| Module        | Holds                                                                                   |
|---------------|-----------------------------------------------------------------------------------------|
| `samples`     | topics, share partitions, state batches and metadata images that tests of all rooms use |
| `process`     | one process over the log in memory: the real runtime with whatever machines it is given |
| `share_calls` | operations on the share partitions of a process                                         |
| `pruning`     | a process with one log partition, and its pruner                                        |
| `node`        | a process under the log partitions of a node, as its settings make them                 |
| `maintenance` | such a node with its maintenance                                                        |
| `shard`       | one share shard over a log that is a list                                               |
| `service`     | the share service over shards without a log                                             |
| `serving`     | a listener on loopback, whose answers a test decides                                    |
"""
