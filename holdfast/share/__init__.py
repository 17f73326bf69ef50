"""Share partitions: from a request to a decision, and the state that it is made of.

| Module | What it holds |
|---|---|
| `topic_gate` | lets calls wait whose topics are not known yet |
| `service`, `operations` | take a request apart, one operation for each share partition, and answer once |
| `decisions`, `refusals` | `ShareShard`, the state machine behind one log partition: every decision about it |
| `state`, `load` | what the shard decides about, and how it is loaded from the log |
| `config`, `state_bounds` | the settings of a shard, and what all shards of a node may hold together |
| `errors` | Kafka's error codes, and which error is answered with which |
| `metrics`, `state_watch` | instruments, and the warning before a bound is reached |
"""
