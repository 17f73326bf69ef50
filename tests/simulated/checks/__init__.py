"""What must hold: the truth, what it makes of loads, answers and states, and what a run must have seen.

| Module          | Holds                                                                                     |
|-----------------|-------------------------------------------------------------------------------------------|
| `invariants`    | the names of all that must hold                                                           |
| `truth`         | the fold of the whole log, and what a reader that starts now would see                    |
| `expect`        | which state explains an answer                                                            |
| `judge`         | loads, answers and states against the truth                                               |
| `coverage`      | what a run must have seen                                                                 |
"""
