"""Apache Kafka from a client's side: connections, leaders, metadata, groups' offsets and security properties; the ground floor.

Nothing here knows of share groups, of our log or of the node.

`protocol` has the bytes: `primitives`, `body`, `frames`, `api_keys`, `error_codes`, the `requests` that are packed by hand, and
`unknown_tags`, which takes out of an answer what kio cannot read.
`connection_options` says how brokers are reached; `brokers` has one connection to one of them, which `aiokafka_parts` opens, and keeps
their quotas; `exchange` sends over it what kio writes and reads, and has links to brokers for the calls of `discovery`.
`metadata`, `topics` and `group_offsets` query the brokers for what their names say; `decompression` takes apart what they store.
`cluster` knows who leads the partitions of the log and of any other topics, which `records` reads: batches as views of what brokers answer.
`discovery` finds coordinators and makes calls there, on any Kafka.
`security` reads the properties that all clients share, `java_properties` renders them for Spark; `oauth` has logins by tokens.
`librdkafka` makes its clients and describes topics, `librdkafka_types` has what its stubs leave out.
`errors` is what can go wrong; `addresses` and `topic_ids` are texts.
"""
