"""A process that writes state, by default as fast as it is answered, and notes each write and each answer in a file.

It outlives the daemon that it writes to, and goes on when there is one again. Each connection has a share partition of
its own and acknowledges one offset after the other. The journal has one line per event: `s` for a write that leaves,
`a` for one that was answered, `o` for one that was outstanding when the connection ended, `r` for one that was
refused; then partition and offset.

Example: python -m tests.real.node.journal_writer 127.0.0.1:9492 AAECAwQFBgcICQoLDA0ODw 32 journal 10
The last number is how long each connection pauses after an answer, in ms.
"""

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Final, Self

from kio.schema.errors import ErrorCode

from holdfast.client import ClientError, ShareStateError, connect
from holdfast.kafka.topic_ids import parse_topic_id
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from tests.real.nodes import ONE_TRY
from tests.world.samples import EPOCH_MAX

GROUP: Final = "kills"

#: Offsets in a row with the same delivery count, which become one state batch.
RUN: Final = 50
_COUNTS: Final = 5
_RECONNECT_PAUSE_S: Final = 0.1

#: With these the client says that it got no answer.
NO_ANSWER: Final = (ErrorCode.network_exception, ErrorCode.request_timed_out)


def batch_of(offset: int) -> StateBatch:
    """Return what is written about an offset."""
    return StateBatch(offset, offset, ACKNOWLEDGED, 1 + offset // RUN % _COUNTS)


class Journal:
    """What a journal holds, read on from where the last reading ended."""

    def __init__(self, path: Path) -> None:
        self.answered: Counter[int] = Counter()  #: by partition: so many offsets from 0 on were answered
        self.events: Counter[bytes] = Counter()
        self._path = path
        self._position = 0

    def read_on(self) -> Self:
        """Take what was written since; a line still being written is left for the next time."""
        if self._path.exists():
            with self._path.open("rb") as journal:
                journal.seek(self._position)
                new = journal.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._position += len(whole)
            for line in whole.splitlines():
                event, partition, offset = line.split()
                self.events[event] += 1
                if event == b"a":
                    assert int(offset) == self.answered[int(partition)], "each offset is answered once, in order"
                    self.answered[int(partition)] += 1
        return self


async def write(
    address: str, topic_id: bytes, partition: int, journal: int, pause_s: float, stop: asyncio.Event
) -> None:
    """Write one offset after the other until told to stop."""
    offset = 0
    while not stop.is_set():
        try:
            async with connect(address, ONE_TRY) as client:
                while not stop.is_set():
                    note = f"{partition} {offset}\n"
                    os.write(journal, f"s {note}".encode())
                    try:
                        await client.write(GROUP, topic_id, partition, EPOCH_MAX, EPOCH_MAX, -1, [batch_of(offset)])
                    except ClientError as error:
                        event = "o" if isinstance(error, ShareStateError) and error.code in NO_ANSWER else "r"
                        os.write(journal, f"{event} {note}".encode())
                        raise
                    os.write(journal, f"a {note}".encode())
                    offset += 1
                    if pause_s:
                        await asyncio.sleep(pause_s)
        except ClientError:
            await asyncio.sleep(_RECONNECT_PAUSE_S)


async def main(address: str, topic_id: str, connections: str, path: str, pause_ms: str = "0") -> None:
    """Write over so many connections until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    # Whole lines appended by one write each are never mixed, and survive this process as soon as they are written.
    journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async with asyncio.TaskGroup() as writers:
        for partition in range(int(connections)):
            writers.create_task(
                write(address, parse_topic_id(topic_id), partition, journal, int(pause_ms) / 1_000, stop)
            )
    os.fsync(journal)
    os.close(journal)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
