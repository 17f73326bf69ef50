"""What a life is made of; lives on the cluster are made of it, too.

| Module          | Holds                                                                                     |
|-----------------|-------------------------------------------------------------------------------------------|
| `world`         | topic, processes, clock, what each append was meant to be                                 |
| `node`          | one process: the real parts, and the watchers between them                                |
| `machine`       | the real shard and operation, watched                                                     |
| `stand_ins`     | what stands for the parts that are not simulated                                          |
| `requests`      | clients: what they request, and that they get one answer                                  |
| `snapshots`     | the snapshot topic, the jobs that fold the log into it, and what can go wrong with either |
"""
