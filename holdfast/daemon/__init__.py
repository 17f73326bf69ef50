"""One node: what it listens on, what it serves, and what it does by the clock.

Read in this order: `node` (every part, started and stopped top to bottom), `server` (a client connection, its requests and answers),
`share` (one operation per share partition: decide, replay), `partitions` (which log partitions load and serve here).
`maintenance` has the periodic work; `pruning`, `topics`, `snapshots` and `brokers` are what it works on.
`admin` is what an admin may request of a running node, `settings` every setting and the form of the log lines.
"""
