"""The output for people and scripts; nothing here reads from a node or from Kafka.

- `output`: printing, as tables or JSON; `tables`: the layout of rows on a terminal;
- `division`: log partitions and the nodes that divide them, and whether all is well;
- `group_lag`: share partitions with their lag, and sums by group;
- `group_description`: a group with its share partitions; `group_watch`: the same, drawn again and again;
- `state_differences`: what a change makes of a state, and what is lost by it;
- `job_progress`, `broker_start`: progress of the compaction job, and of a Kafka that starts;
- `waiting`: whom a command waits for that has no answer yet.
"""
