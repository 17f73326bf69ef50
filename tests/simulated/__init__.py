"""The simulation: one seed is one life of several nodes, over the in-memory log or over the real Kafka log on a simulated cluster.
Lives of a group have the real membership of nodes in them, those of a gateway its whole shell.

What is real and what is not is in README.md.

A life has two phases. First faults and requests, one random step after another; then a calm, in which every partition must
find one owner that serves, and every operation its one outcome. After each step everything that it touched is compared with
the truth: the whole log, never pruned, folded by code of its own.

| Room or module  | Holds                                                                                     |
|-----------------|-------------------------------------------------------------------------------------------|
| `life`          | the choice of steps, the calm, the end                                                    |
| `faults`        | what can go wrong, as a table                                                             |
| `parts`         | what a life is made of: the world, nodes, clients, the snapshot topic                     |
| `checks`        | what must hold: the truth, the judge, the names of the invariants, what must be seen      |
| `around`        | what is around the log: readers, topics, damage                                           |
| `cluster`       | lives on the simulated cluster                                                            |
| `group`         | lives of a group of nodes that divide the log partitions                                  |
| `gateway`       | lives of the share gateway                                                                |
| `mutants`       | deliberate bugs (`mutants.txt`) and what caught them (`mutants_caught.json`)              |

    python -m tests.simulated --seeds 10000          many lives, in parallel; prints what happened how often, and lives per second
    python -m tests.simulated --seed 17 --trace      one life, told: each step by number and time, and indented what it led to
    python -m tests.simulated.mutants                every deliberate bug, the invariant that caught it, and how many seeds it took
"""
