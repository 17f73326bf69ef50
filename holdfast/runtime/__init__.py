"""The generic coordinator runtime: partitions, epochs, offsets, timelines; it knows nothing of share groups.

Read in this order: `partition.states` (what a partition can be), `partition.ownership` (which records count, and who may take a partition),
`timeline` (state that can be undone), `partition` (one state machine behind one log partition), `coordinator` (all of a node's),
`log` (what is asked of the log; `kafka_log` and `memory_log` answer), `kafka_log.shell` (the asyncio glue).

The core (everything but `kafka_log`) is synchronous and free of I/O, clock and randomness: time, random bytes and the log are arguments.
"""
