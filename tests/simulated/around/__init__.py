"""What is around the log of a life in memory: who else reads it, which topics exist, and what befalls the log itself.

| Module    | Holds                                                                                                    |
|-----------|----------------------------------------------------------------------------------------------------------|
| `readers` | consumer groups that commit, fall silent, go back or lose their offsets; the real `LogReaders` of a node |
| `topics`  | topics that are deleted and come back; the real `DeletedState` and `TopicGate` of a node                 |
| `damage`  | unreadable records, lost ends, foreign cuts, log starts that fall back, other partition counts           |
"""
