"""The page at the HTTP port of a node (`holdfast.page`), made of the state in memory; while nobody looks, it takes a short look a minute.

- `purse` bounds the part of the loop's time that readers take, and divides it among them; `paced_looks` look into topics by it.
- `states` has the share partitions of the node's own log partitions; `others` those of other nodes.
- `paces` counts what is finished while somebody looks, and `samples` by a look a minute, so that the first reader sees the last hour.
- `moments` makes the moments from which views are cut, in slices of the loop's time; readers share them.
- `cluster` shows nodes, log partitions, brokers and readers.
- `rights` decides what a reader sees; `veil` hides addresses from those who may not see the cluster.
- `kept_answers` are those that several readers share.
- `node_page` is the source of it.
- `site` is the application: it is imported when somebody looks first, and says what is missing where that fails.
"""
