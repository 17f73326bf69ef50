"""How many requests and how long a look-up of many coordinators takes, batched and downgraded: `python -m benchmarks.look_up`.

It starts an Apache Kafka of one broker and looks up groups, with FindCoordinator in version 6 (many keys in one request) and in
version 3 (one key in one request, so many in flight together as the limit says); each figure is the median of some runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from typing import Any

from holdfast.broker import development_kafka
from holdfast.kafka.addresses import parse_address
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.discovery.calls import Sender, Versions
from holdfast.kafka.discovery.coordinators import Coordinators
from holdfast.kafka.discovery.find_coordinator import Key, KeyType
from holdfast.kafka.discovery.links import Links
from holdfast.kafka.protocol.api_keys import FIND_COORDINATOR

RUNS = 5
CREATION_S = 60.0


class Counted:
    """A connection that hides the versions above one, and counts look-ups."""

    def __init__(self, connection: BrokerConnection, version_max: int) -> None:
        """Pass everything on to a connection."""
        self.versions: Versions = {**connection.versions, FIND_COORDINATOR: (0, version_max)}
        self.requests = 0
        self._connection = connection

    @property
    def is_open(self) -> bool:
        """See `calls.Connection`."""
        return self._connection.is_open

    async def exchange(self, api_key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
        """See `calls.Connection`."""
        self.requests += api_key == FIND_COORDINATOR
        return await self._connection.exchange(api_key, version, body, is_flexible=is_flexible)

    def close(self) -> None:
        """See `calls.Connection`."""
        self._connection.close()


async def measure(bootstrap_server: str, key_count: int, version_max: int) -> dict[str, Any]:
    """Return requests and milliseconds of one look-up of so many groups."""
    address = parse_address(bootstrap_server)
    options = ConnectionOptions(bootstrap=(address,))

    async def open_one(place: tuple[str, int]) -> Counted:
        return Counted(await BrokerConnection.open(place, options, 60_000), version_max)

    links = Links([address], open_one, Sender())
    times_ms = []
    try:
        # The first look-up makes the broker create its topic.
        await Coordinators(links).find_within([Key(KeyType.GROUP, "first")], CREATION_S)
        connection = await links.to(address)
        for _ in range(RUNS):
            connection.requests = 0
            began_s = time.perf_counter()
            found = await Coordinators(links).find(KeyType.GROUP, [f"group-{number}" for number in range(key_count)])
            times_ms.append((time.perf_counter() - began_s) * 1_000)
            assert len(found) == key_count
            assert not any(each.error_code for each in found)
    finally:
        links.close()
    return {
        "version": version_max,
        "keys": key_count,
        "requests": connection.requests,
        "median_ms": round(statistics.median(times_ms), 1),
        "runs_ms": [round(each, 1) for each in times_ms],
    }


def main() -> None:
    """Measure, and print a line of JSON for each version."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--bootstrap-server", help="A Kafka that runs; otherwise one is started.")
    arguments = parser.parse_args()

    def measure_at(bootstrap_server: str) -> None:
        for version_max in (6, 3):
            print(json.dumps(asyncio.run(measure(bootstrap_server, arguments.keys, version_max))))

    if arguments.bootstrap_server:
        measure_at(arguments.bootstrap_server)
    else:
        with development_kafka() as bootstrap_server:
            measure_at(bootstrap_server)


if __name__ == "__main__":
    main()
