"""Share state, as a tenant of a node: calls, decisions, the state they are made of, and how people see it.

`tenant` is the value that the node is given; all else hangs on it.

| Module | Contents |
|---|---|
| `tenant` | the rows that the node takes, and the tenant from the start of a node to its end |
| `calls` | the five calls: from bytes to a request of the service, and back |
| `topic_gate` | lets calls wait whose topics are not known yet |
| `service`, `operations` | take a request apart, one operation for each share partition, and answer once |
| `access` | the way to the service for other tenants of the node |
| `decisions`, `refusals` | `ShareShard`, the state machine of one log partition: every decision about it |
| `read_or_initialize` | the decision of a leader's first call, made of those of the calls |
| `state`, `load` | what the shard decides about, and how it is loaded from the log |
| `shard_kind` | shards as the node sees them, and the warning before a bound is reached |
| `settings` | the settings of share state, which a node reads with its own |
| `config`, `components`, `state_bounds` | the configuration of a shard, how it is made, and the bounds of all shards of a node |
| `errors` | Kafka's error codes, and which error is answered with which |
| `metrics` | instruments |
| `commands`, `previews`, `state_listing` | commands of an admin, what a call would change, and pages of share partitions |
| `group_pages` | HTTP paths of pages for groups |
| `missing_topics`, `deleted_topics`, `deleted_state` | how long topics have been missing, when their state may go, and its removal |
| `group_metrics/` | records in flight, given up, retried and not yet delivered, by share group |
| `page/` | the page at the HTTP port, made of the state in memory while somebody looks |
| `snapshots/` | the snapshot topic: followed, restored from, verified |
"""
