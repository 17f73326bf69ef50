"""Lives of a group of nodes, over the log in memory and a simulated group coordinator.

| Module     | Holds                                                                                             |
|------------|---------------------------------------------------------------------------------------------------|
| `life`     | the choice of steps, the calm, the end                                                            |
| `faults`   | what can go wrong, as a table                                                                     |
| `world`    | brokers, network and members of one life, and what leaders hand in                                |
| `node`     | a process: the real log partitions of a node, and its queries to earlier owners                   |
| `member`   | the real membership core and the real protocol of nodes in one process                            |
| `watch`    | what a member must not do                                                                         |
| `link`     | the way of a member to its group coordinator                                                      |
| `network`  | virtual time, messages, and who is cut off from whom                                              |
| `brokers`  | which broker coordinates the group, and what becomes of it                                        |
| `group`    | the group as Kafka keeps it                                                                       |
| `config`   | the config topic, and the real follower of it                                                     |
"""
