"""Members with nothing to do: each has a session over a connection of its own, and fetches again as soon as it is answered."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from benchmarks.client import BenchmarkError
from holdfast.api import share_fetch
from holdfast.api.share_consumer import NamedPartition
from holdfast.api.share_fetch import ShareFetchRequest
from holdfast.client import ClientSettings
from holdfast.client.connection import Address, open_connection
from holdfast.kafka.protocol import api_keys

_VERSION: Final = 2
#: As stock clients wait.
_WAIT_MS: Final = 500
_BYTES_MAX: Final = 50 << 20
_RECORDS_MAX: Final = 500
_START_S: Final = 120.0
_CLIENT: Final = ClientSettings(connect_timeout_ms=60_000, request_timeout_ms=60_000)


@contextmanager
def idle_members(address: Address, topic_id: bytes, groups: int, members: int, partitions: int) -> Iterator[None]:
    """Have the members of some groups fetch from a topic without records; all have had an answer.

    Args:
        address: of the gateway.
        topic_id: of the topic.
        groups: how many.
        members: of each group, among which the partitions are divided.
        partitions: of the topic.
    """
    started, is_over = Event(), Event()

    async def live() -> None:
        left = groups * members

        async def fetch_on(group: str, mine: Sequence[int]) -> None:
            nonlocal left
            connection = await open_connection(address, _CLIENT)
            member_id, epoch = str(uuid.uuid4()), 0
            try:
                while not is_over.is_set():
                    topics = [] if epoch else [(topic_id, [NamedPartition(each) for each in mine])]
                    request = ShareFetchRequest(
                        group, member_id, epoch, topics, [], _WAIT_MS, 1, _BYTES_MAX, _RECORDS_MAX, _RECORDS_MAX
                    )
                    body = share_fetch.encode_request(_VERSION, request)
                    answer = share_fetch.decode_response(
                        *await connection.request(api_keys.SHARE_FETCH, _VERSION, body)
                    )
                    if answer.error_code:  # the node starts
                        epoch = 0
                        continue
                    left -= epoch == 0
                    epoch += 1
                    if not left:
                        started.set()
            finally:
                connection.close()

        async with asyncio.TaskGroup() as tasks:
            for group in range(groups):
                for member in range(members):
                    tasks.create_task(fetch_on(f"idle-{group}", range(member, partitions, members)))

    thread = Thread(target=lambda: asyncio.run(live()), daemon=True)
    thread.start()
    try:
        if not started.wait(_START_S):
            raise BenchmarkError("A member of a group without records had no answer.")
        yield
    finally:
        is_over.set()
        thread.join()
