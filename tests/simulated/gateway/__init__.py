"""Lives of the share gateway: its whole shell over real states, on virtual time, with logs of records and members that are simulated.

| Module     | Holds                                                                                             |
|------------|---------------------------------------------------------------------------------------------------|
| `life`     | the choice of steps, the calm, the end                                                            |
| `faults`   | what can go wrong, as a table                                                                     |
| `world`    | nodes, states, logs and members of one life, and who leads                                        |
| `node`     | a process of a gateway: real calls, sessions, leader, share partitions                            |
| `states`   | the real shard of share states, and the way of a node to it                                       |
| `records`  | the log of a topic partition, and those who read it                                               |
| `member`   | a consumer: its sessions, what it holds, what it says                                             |
| `ledger`   | who was given which record, what was answered, and what must hold of both                         |
"""
