"""A real Kafka topic as the log of the runtime: batching, sending, fetching, and the event loop around it.

Out: `log` (the log as the runtime sees it) hands a record to `sending`, which makes batches and sends them at the pace of `linger`.
`sent_batches` keeps each batch until it is read back.

In: `fetcher` follows partitions and reports their records; `fetch_loop` fetches from one broker, in a session that `fetch_session` keeps;
`record_batches` decodes batches. `list_offsets` finds the start and the end of logs.

With `log.client = librdkafka`, librdkafka sends and reads records instead of both (`through_librdkafka`).

Around: `shell` gives the runtime its clock and its turns; `bug_reports` receives errors of ours, so that they stop nothing else.
"""
