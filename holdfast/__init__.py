"""Holdfast: a Kafka-backed coordinator for the delivery state of share groups.

The rooms, top down; imports point downwards only, and `lint-imports` checks it:

- `cli`, `console`: the command line tool.
- `workers`: several nodes of one host. `tenants`: the applications that a node hosts; `node_settings`: its settings.
- `gateway`: the share gateway, a tenant. `share`: share state, another one.
- `daemon`: one node and host of tenants, from its sockets to its periodic work; it knows no tenant.
- `client`: an asyncio client of a node. `broker`: an embedded Kafka for development.
- `compaction`: the Spark job. `runtime`: the pure core of the coordinator, and the log on Kafka.
- `delivery`: the pure core of a leader of share groups.
- `page`: share groups of any Kafka to be looked at in a browser.
- `membership`: membership of a group through Kafka's group coordinator, a library of its own.
- `api`: the calls, as values and as bytes.
- `history`: the history of a log as files, as its job writes and others read it.
- `records`: what is in the log, and the rule which records count.
- `kafka`: Apache Kafka from a client's side. `jars`: Java and its jars.
- `metrics`, `distribution`: instruments; name and version. `clock`, `backoff`: the clock of waits, and pauses between tries.
- `http_refusals`: refusals as JSON or as a small page.
- `hidden_texts`: secrets, which stand in no line that others read. `http_connections`: those of uvicorn, without its server.
- `children`: child processes. `service`: what a service manager is notified of.

docs/architecture.md draws them as a tree, docs/glossary.md has the words.
"""
