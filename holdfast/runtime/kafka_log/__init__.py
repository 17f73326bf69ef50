"""A real Kafka topic as the log of the runtime: batching, sending, fetching, and the event loop around it.

Out: `log` (the log as the runtime sees it) hands a record to `sending`, which makes batches and sends them, as often as `linger` says.
`sent_batches` keeps what was sent until it is read back.

In: `fetcher` follows partitions and says what was read; `fetch_loop` fetches from one broker, in a session that `fetch_session` keeps;
`record_batches` takes batches apart. `list_offsets` finds where logs begin and end.

Around: `shell` gives the runtime its clock and its turns; `bug_reports` is where errors of ours go, so that they stop nothing else.
"""
