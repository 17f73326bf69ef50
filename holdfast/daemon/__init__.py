"""One node: a host for state machines on a Kafka log. It listens, loads, prunes and stops, and knows no state machine.

An application with state in the log is a tenant (`holdfast.share` is one): one value that contributes calls, commands, HTTP paths and
shards. Begin with `tenant`, which says what a tenant hands in and what it is given, and `shards`, which says what its shards must do.

Read in this order: `node` (every part, started and stopped top to bottom), `server` (a client connection, its requests and answers),
`partitions` (which log partitions load and serve here), `membership` (which of several nodes has what).
`maintenance` has the periodic work; `pruning`, `topics`, `snapshots` and `brokers` are what it works on.
`admin` is what an admin may request of a running node; `login` and `access` say who a client is and what it may do.
`http` has health, metrics and queries; `log_metrics` has the numbers of the log.
`settings` has every setting and the form of the log lines, `config_topic` the settings of all nodes.

Around `node`: `context` (clock, metrics, bugs and log lines), `node_parts` (what people and clients query), `components` (from settings to
what each part is given), `starting` (what is answered before the parts exist, and the wait for brokers), `steps` (of a start and a stop),
`node_exit` (how it ends), `node_condition` (as the supervisor of the process sees it), `worker_place` (as one of several on a host),
`internal_errors` (bugs of ours), and the files that it reads again (`file_watch`) and commands keep (`file_replacement`).
"""
