"""The generic coordinator runtime: partitions, epochs, offsets, timelines; it knows nothing of share groups.

Read in this order:

- `partition.states`: what a partition can be; `partition.lifecycle`: one log partition, and the object of its state that it holds
- `partition.load`: from the first look at the log to our own checkpoint; `partition.serving`: decide, append, park, answer
- `partition.reading`: what both know of the log; `partition.tenancy`: what a node keeps from load to load
- `partition.ownership`: which records count, and who may take a partition; `partition.ends`: how a load or a serving ends
- `partition.log_check`: whether the log is ours and whole; `partition.restore_point`: what a load may begin with
- `partition.parking`: what waits for the log; `timeline`: state that can be undone
- `state_machine`: what a state machine and an operation have to do; `log_protocol`: the log and its listener; `host`: the node around
- `coordinator`: all partitions of a node, with their `deadlines` and the `read_index` of each; `load_slices`: what loads may take of a
  turn; `effects`: what partitions want done, and `dispatch`: who does it
- `settings`, `metrics`, `errors`; `build`: whether this is the compiled one
- `kafka_log`: the log on Kafka, and the asyncio shell around the core

The core (everything but `kafka_log`) is synchronous and free of I/O, clock and randomness: time, random bytes
and the log are arguments.
"""
