"""Lives on a simulated cluster, behind the real Kafka log.

| Module       | Holds                                                                                         |
|--------------|-----------------------------------------------------------------------------------------------|
| `life`       | the choice of steps, the calm, the end                                                        |
| `faults`     | what can go wrong, as a table                                                                 |
| `world`      | cluster, processes and clock of one life                                                      |
| `node`       | a simulated node whose log is the Kafka log, and what that log must tell it                   |
| `process`    | one process: its event loop and its Kafka log                                                 |
| `watch`      | what a process may put on the wire, and what its log may tell                                 |
| `inside`     | what is looked at inside the Kafka log                                                        |
| `timeline`   | virtual time, and the event loops on it                                                       |
| `transport`  | connections                                                                                   |
| `brokers`    | the cluster, its controller and the topic                                                     |
| `broker`     | one broker: what it believes and what it answers                                              |
| `replicated` | one log partition, and what leaders of the past still know of it                              |
| `wire`       | requests taken apart and answers put together                                                 |
"""
