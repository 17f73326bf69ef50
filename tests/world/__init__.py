"""The worlds of tests: what stands around the part under test, as much of it as a test asks for.

`Process` is under all that need a log. A shard and a service have none: their tests look at single decisions and at what
reaches the runtime, which a log would only carry later. A listener has no shards: its tests decide when an answer comes.

| Module        | Holds                                                                                   |
|---------------|-----------------------------------------------------------------------------------------|
| `samples`     | topics, share partitions, state batches and metadata images that tests of all rooms use |
| `records`     | records of a log of share state, as the log has them                                     |
| `process`     | one process over the log in memory: the real runtime with whatever machines it is given |
| `share_calls` | operations on the share partitions of a process                                         |
| `pruning`     | a process with one log partition, and its pruner                                        |
| `node`        | a process under the log partitions of a node, as its settings make them                 |
| `maintenance` | such a node with its maintenance                                                        |
| `shard`       | one share shard over a log that is a list                                               |
| `service`     | the share service over such shards                                                      |
| `serving`     | a listener on loopback, whose answers a test decides                                    |
| `tenants`     | tables of a node with all tenants, and parts of share state that the host is given      |
| `timers`      | a second tenant, with a row of each kind but no shards                                  |
| `old_broker`  | a broker on loopback that is too old for members of groups                              |
| `page_source` | a source of the page in memory, quiet or with a stuck record                             |
| `page_server` | the page on loopback                                                                     |
| `identity`    | who clients are and what they may do: certificates, logins, access rules                |
"""
