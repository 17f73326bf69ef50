"""The generic coordinator runtime: partitions, epochs, offsets, timelines; it knows nothing of share groups.

Read in this order:

- `partition.lifecycle`: theory of operation of the whole machine, then one log partition and the object of its state;
  `partition.states`: the table of states
- `partition.load`: from the first look at the log to our own checkpoint; `partition.serving`: decide, append, park, answer
- `partition.reading`: position and findings in the log, for both; `partition.tenancy`: memory of a node from load to load
- `partition.ownership`: which records count, and who may take a partition; `partition.ends`: how a load or a serving ends
- `partition.log_check`: whether the log is ours and whole; `partition.restore_point`: a state that a load may begin with
- `partition.parking`: operations that wait for the log; `timeline`: state that can be undone
- `state_machine`: the interface of state machines and operations; `log_protocol`: the log and its listener; `host`: the node around
- `coordinator`: all partitions of a node, with their `deadlines` and the `read_index` of each; `load_slices`: the share that loads have
  of a turn; `effects`: requests of partitions, and `dispatch`: who carries them out
- `settings`, `metrics`, `errors`; `build`: whether this is the compiled one
- `kafka_log`: the log on Kafka, and the asyncio shell around the core

The core (everything but `kafka_log`) is synchronous and free of I/O, clock and randomness: time, random bytes
and the log are arguments.
"""
