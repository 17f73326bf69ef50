"""A source of the page in memory: share partitions as a test gives them, and what their questions are refused for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from difflib import get_close_matches
from hashlib import md5
from typing import Final, NamedTuple

from holdfast.kafka.topic_ids import format_topic_id
from holdfast.page.cursors import cut_cluster
from holdfast.page.source import (
    HISTORY,
    LOG,
    ROWS_PER_PAGE,
    BrokerView,
    Change,
    ClusterView,
    GroupRow,
    GroupsPage,
    GroupView,
    HistoryView,
    LogPartitionView,
    OldestUnfinished,
    PageRefused,
    Part,
    RecordView,
    StateRange,
    TimelineView,
    WindowView,
)
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.deliveries import describe_state
from holdfast.records.share.group_lag import LagTotals, Row, TopicEnd, with_lag
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState

NOW_MS: Final = 1_790_000_000_000
#: Deliveries from this one on are told by the log, and earlier ones by the history.
HISTORY_DELIVERIES: Final = 3
HISTORY_PLACE: Final = "s3a://a-bucket-with-a-long-name/holdfast/production/history?region=eu-central-1"
_NAMES: Final = {0: "available", 2: "acknowledged", 3: "archiving", 4: "archived"}


class Held(NamedTuple):
    """A share partition, and where the log of its topic ends."""

    group: str
    topic: str
    partition: int
    start_offset: int
    batches: tuple[tuple[int, int, int, int], ...] = ()
    log_end: int | None = None
    log_unknown: str = ""

    @property
    def topic_id(self) -> bytes:
        return md5(self.topic.encode(), usedforsecurity=False).digest()

    def row(self) -> Row:
        batches = tuple(StateBatch(*each) for each in self.batches)
        state = ShareState(1, 1, 3, self.start_offset, -1, 0, NOW_MS, batches, 3, 1, 0)
        key = SharePartitionKey(self.group, self.topic_id, self.partition)
        end = TopicEnd(self.topic, self.log_end, self.log_unknown)
        return with_lag(describe_state(key, state, 0, "1"), end)


class MemorySource:
    """A source whose parts are lists; `refused` stands for all answers while it is set."""

    def __init__(self, held: Sequence[Held], unknown: tuple[str, ...] = ()) -> None:
        self.held = list(held)
        self.unknown = unknown
        self.refused: PageRefused | None = None
        self.records: dict[tuple[str, int, int], RecordView] = {}
        self.as_of_ms = NOW_MS
        self.log_partitions = 3
        self._turned = asyncio.Event()

    def turn(self) -> None:
        """Tell all that follow of a change."""
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    async def groups(self, after: str | None = None, name: str | None = None) -> GroupsPage:
        self._check()
        found = [row for row in self._rows() if name is None or name in f"{row.group}/{row.topic}"]
        rows = sorted(found, key=lambda row: (-row.delivery_count_max, -row.in_flight, row.group))
        try:
            begin = int(after or 0)
        except ValueError:
            raise PageRefused(400, "This cursor is of another run; begin with the first page.") from None
        more = str(begin + ROWS_PER_PAGE) if len(rows) > begin + ROWS_PER_PAGE else None
        return GroupsPage(self.as_of_ms, tuple(rows[begin : begin + ROWS_PER_PAGE]), more, len(rows), self.unknown)

    async def group(self, group: str, after: str | None = None) -> GroupView:
        self._check()
        held = self._of(group)
        totals = LagTotals()
        rows = tuple(totals.adding(each.row() for each in held))[:ROWS_PER_PAGE]
        topics = tuple(row for row in self._rows() if row.group == group)
        return GroupView(self.as_of_ms, group, totals.data(), topics, rows, None, self.unknown)

    async def window(self, group: str, topic: str, partition: int) -> WindowView:
        self._check()
        held, row = self._one(group, topic, partition), self._one(group, topic, partition).row()
        return WindowView(
            as_of_ms=self.as_of_ms,
            group=group,
            topic=held.topic,
            topic_id=format_topic_id(held.topic_id),
            partition=partition,
            row=row,
            start_offset=row["start_offset"],
            state_end_offset=row["state_end_offset"],
            ranges=tuple(StateRange(first, last, _NAMES[state], n) for first, last, state, n in held.batches),
            log_start=None if held.log_end is None else 0,
            log_end=held.log_end,
            log_unknown=held.log_unknown,
        )

    async def timeline(self, group: str, topic: str, partition: int, offset: int) -> TimelineView:
        self._check()
        held = self._one(group, topic, partition)
        if held.log_end is not None and offset >= held.log_end:
            raise PageRefused(404, f"Offset {offset} is not written yet; the log ends at {held.log_end}.")
        if offset < held.start_offset:
            changes = [Change(NOW_MS - 60_000, "finished", None, "the start offset went over it", None, 1, 0, 40)]
        else:
            found = [each for each in held.batches if each[0] <= offset <= each[1]]
            changes = [
                Change(
                    NOW_MS - 81_000 + 20_000 * n,
                    "available",
                    n,
                    f"not finished by delivery {n}; to be given out again",
                    None,
                    1,
                    0,
                    100 + n,
                    HISTORY if n < HISTORY_DELIVERIES else LOG,
                )
                for _, _, state, count in found
                for n in range(1, count + (state == 0))
            ]
            changes += [
                Change(NOW_MS - 500, _NAMES[state], count, "", 7, 1, 0, 199) for _, _, state, count in found if state
            ]
        return TimelineView(
            as_of_ms=self.as_of_ms,
            group=group,
            topic=held.topic,
            topic_id=format_topic_id(held.topic_id),
            partition=partition,
            offset=offset,
            now=changes[-1] if changes else None,
            changes=tuple(changes),
            log_topic="__share_group_state",
            log_partition=0,
            reaches_to_offset=100 + HISTORY_DELIVERIES,
            reaches_to_ms=NOW_MS - 86_400_000,
            unknown=self.unknown,
            history=HistoryView(HISTORY_PLACE, NOW_MS - 86_400_000 * 30, 3, 100 + HISTORY_DELIVERIES, ""),
        )

    async def record(self, topic: str, partition: int, offset: int) -> RecordView:
        self._check()
        found = self.records.get((topic, partition, offset))
        if found is None:
            raise PageRefused(410, f"Offset {offset} is below the start of the log: the record was deleted.")
        return found

    async def cluster(self, after: str | None = None) -> ClusterView:
        if self.refused is not None and self.refused.status != 502:
            raise self.refused
        problem = "" if self.refused is None else self.refused.text
        partitions = tuple(
            LogPartitionView(each, None if problem else 1, 0, None if problem else 200, 200, 3, problem)
            for each in range(self.log_partitions)
        )
        problems = (problem,) if problem else ()
        brokers = (BrokerView(1, "127.0.0.1:9092"), BrokerView(2, "127.0.0.1:9093"))
        view = ClusterView(
            self.as_of_ms, "127.0.0.1:9092", "Zk3f9", "__share_group_state", brokers, partitions, problems
        )
        return cut_cluster(view, "run", after)

    def audience(self) -> str:
        return ""

    async def changed(self) -> AsyncIterator[None]:
        while True:
            turned = self._turned
            await turned.wait()
            yield

    def _check(self) -> None:
        if self.refused is not None:
            raise self.refused

    def _of(self, group: str) -> list[Held]:
        found = [each for each in self.held if each.group == group]
        if not found:
            near = get_close_matches(group, {each.group for each in self.held})
            raise PageRefused(404, f"There is no share group {group}.", tuple(near))
        return found

    def _one(self, group: str, topic: str, partition: int) -> Held:
        for each in self._of(group):
            if topic in (each.topic, format_topic_id(each.topic_id)) and each.partition == partition:
                return each
        near = get_close_matches(topic, {each.topic for each in self._of(group)})
        raise PageRefused(404, f"The group does not read partition {partition} of {topic}.", tuple(near))

    def _rows(self) -> list[GroupRow]:
        return [
            self._sum(group, topic, [each for each in self.held if (each.group, each.topic) == (group, topic)])
            for group, topic in dict.fromkeys((each.group, each.topic) for each in self.held)
        ]

    def _sum(self, group: str, topic: str, held: Sequence[Held]) -> GroupRow:
        totals = LagTotals()
        rows = list(totals.adding(each.row() for each in held))
        waiting = [row for row in rows if row["oldest_unfinished_offset"] is not None]
        oldest = None
        if waiting:
            oldest = OldestUnfinished(waiting[0]["partition"], waiting[0]["oldest_unfinished_offset"], NOW_MS - 260_000)
        finished = tuple((7 * minute * len(rows)) % 31 for minute in range(60))
        return GroupRow(
            group=group,
            topic=topic,
            topic_id=format_topic_id(held[0].topic_id),
            share_partitions=len(rows),
            lag=None if totals.unknown else totals.lag,
            lag_known=totals.lag,
            lag_unknown=dict(totals.unknown),
            in_flight=totals.in_flight,
            given_up=sum(last - first + 1 for each in held for first, last, state, _ in each.batches if state == 4),
            delivery_count_max=totals.delivery_count_max,
            oldest=oldest,
            rate_per_s=finished[-2] / 60,
            finished_by_minute=finished,
        )


LONG: Final = "long-" + "w" * 244
RIGHT_TO_LEFT: Final = "طلبات-المتجر"
SCRIPT: Final = "<script>document.title='taken'</script><img src=x onerror=alert(1)>\"'&{{7*7}}"


def quiet() -> MemorySource:
    """Return a source in which all is well."""
    return MemorySource(
        [Held("orders", "orders.created", partition, 1_000, ((1_000, 1_003, 2, 1),), 1_010) for partition in range(3)]
        + [Held("mail", "mail.out", 0, 57, (), 57)]
    )


def stuck() -> MemorySource:
    """Return a source with a record at its fourth delivery, and with names that others chose ill."""
    batches = (
        (40_112, 40_117, 2, 1),
        (40_118, 40_118, 0, 4),
        (40_119, 40_140, 2, 1),
        (40_141, 40_141, 4, 5),
        (40_142, 40_160, 2, 1),
        (40_163, 40_166, 0, 1),
        (40_167, 40_180, 2, 1),
        (40_181, 40_182, 0, 2),
        (40_183, 40_199, 2, 1),
    )
    held = [Held("orders", "orders.created", 1, 40_112, batches, 40_260), *quiet().held]
    held[1:3] = [Held("orders", "orders.created", 0, 39_990, ((39_990, 39_994, 2, 1),), 40_020)]
    held += [
        Held(SCRIPT, "orders.created", 0, 5, ((6, 6, 0, 1),), 9),
        Held(RIGHT_TO_LEFT, "mail.out", 0, 50, ((51, 51, 2, 1),), None, "the brokers did not answer"),
        Held(LONG, "t" * 249, 0, 0, ((0, 4, 2, 1), (6, 9, 0, 1)), 30),
    ]
    source = MemorySource(held)
    value = b'{"order": 40118, "customer": "Ada <b>Lovelace</b>", "lines": [{"sku": "A-7", "count": 2}]}'
    source.records[("orders.created", 1, 40_118)] = RecordView(
        as_of_ms=NOW_MS,
        topic="orders.created",
        partition=1,
        offset=40_118,
        written_ms=NOW_MS - 260_000,
        key=part(b"customer-7"),
        value=part(value),
        headers=((SCRIPT, part(SCRIPT.encode())), ("trace", part(bytes(range(40)))), ("empty", None)),
        headers_in_all=3,
    )
    return source


def part(data: bytes, size_bytes: int | None = None) -> Part:
    """Return a part of a record, whole unless its size says otherwise."""
    return Part(data, len(data) if size_bytes is None else size_bytes)
