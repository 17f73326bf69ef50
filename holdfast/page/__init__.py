"""The page: the state of share groups to be looked at in a browser or as JSON, on a stock Kafka or on a node, read-only.

From the bytes up:

- `decoding` has the records of fetched batches; `log_fold` makes states of those of one log partition, and is pure.
- `book` has the states of all as they are now; it is pure.
- `followed_log` reads one log partition and follows it; `follower` reads a state topic so, and joins no group and commits nothing.
- `topic_names` remembers the names of topics, and is pure.
- `ages` looks up when the oldest records were written.
- `cursors` cuts long lists into parts, and is pure.
- `moment` is all of it at one time, with the ends of topics; the views are cut from it, and it is pure.
- `likeness` finds names that are spelled much like another, and is pure.
- `timeline` tells what became of an offset, from records of the log and of the history; it is pure.
- `past` reads the history of what the log does not have any more.
- `reading` looks once into a topic: for a timeline, or for a record of a user.
- `moment_page` answers all that can be cut from a moment; `kafka_page` is the source of a cluster, made of all these.
- `web` shows it: `web.app.make_app(source)` returns the application that answers requests.
- `source` is what the web side asks, and the values that it is given; it knows neither Kafka nor the web.
"""
