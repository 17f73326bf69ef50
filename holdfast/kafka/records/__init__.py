"""A reader of any topic: record batches as views of the answers of brokers, neither decompressed nor decoded.

How it works, from the bytes up:

1. `connection` receives one answer at a time, into one buffer of its size. Nothing is joined and nothing is sliced into copies.
2. `fetch` has the bytes of Fetch: version 12 names topics, 13 and later use their ids. What an answer has of records stays a view.
3. `batches` reads the heads of record batches, 61 bytes each. Every length in them is compared with the bytes that are there.
4. `transactions` tells which batches were aborted, by the list that came in the same answer and by the markers among the batches.
5. `lanes` makes the requests: each broker has two connections. One waits at the ends of logs, so a broker holds its request for long;
   the other catches up. A broker answers the requests of a connection in order, so one connection alone would let a log at
   which nothing is written hold up all others.
   A `request` at the ends of logs that brought nothing is made again as it is.
6. `partition_reader` is one partition for its caller: position, what was read ahead, and why it is read no more.
7. `room` bounds the answers that are alive, over all readers that share it: a request is made when there is room for its answer.
   `heap` gives the holes between them back to the system.
8. `reader` gives each partition to the lanes of its leader, as the cluster's view has it. `config` has its bounds.

A view keeps the whole answer alive. So the bound is counted in answers that are alive, not in batches.

The room knows no node, no log of ours and no group. It decides nothing about records: which of them count is for its callers.

Source: KIP-227, KIP-320, KIP-392, KIP-516; Apache Kafka's message schema FetchRequest; its record batch format, magic 2.
"""
