"""Who coordinates a group, a transaction or a share partition, and calls about many of them; against any Kafka.

    links = broker_links(options, timeout_ms=30_000)
    coordinators = Coordinators(links)
    first, second = await coordinators.find(KeyType.GROUP, ["orders", "payments"])

`calls` is the transport: one table row for each API says from which version on a request takes many keys, and callers never see it.
`coordinators` remembers who coordinates what, `by_coordinator` makes calls there, and `links` keeps one connection to each server, to
Kafka's brokers by `exchange.broker_links`. `dialing` connects to a host that may have several addresses, some of them silent.
`groups` has all calls about groups. Rows of the table: `find_coordinator`, `group_calls`, `group_offset_calls`, and Metadata in `links`.

Source: KIP-699.
"""
