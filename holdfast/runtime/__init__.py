"""The generic coordinator runtime: partitions, epochs, offsets, timelines; it knows nothing of share groups.

Read in this order: `states` (what a partition can be), `ownership` (who counts, and who may take a partition),
`timeline` (state that can be undone), `partition` (one state machine behind one log partition), `runtime` (all of a node's),
`log` (what is asked of the log; `kafka_log` and `memory_log` answer), `shell` (the asyncio glue).

The core (everything but `kafka_log` and `shell`) is synchronous and free of I/O, clock and randomness:
time, random bytes and the log are arguments.
"""
