"""Record batches that cannot be decoded, and listeners that raise: one partition fails, the others of its broker go on."""

from collections.abc import AsyncIterator, Callable

import pytest

from holdfast.kafka.protocol.requests import Fetched
from holdfast.runtime.kafka_log.fetcher import Fetcher
from holdfast.runtime.kafka_log.sent_batches import SentBatch
from tests.configs import fetcher_config
from tests.pure.kafka.brokers.fake_brokers import FakeBrokers, batch, fetched, sealed, targets_of
from tests.pure.runtime.kafka_log.fetcher_world import Reports, Sent, answer, found, make_tail
from tests.waiting import wait_until

GOOD = batch(5, [b"a", b"b"])
CONFIG = fetcher_config()


def make_fetcher(brokers: FakeBrokers, reports: Reports, sent: Sent | None = None) -> Fetcher:
    return make_tail(brokers, reports, (sent or Sent()).batches, CONFIG)


@pytest.fixture
def brokers() -> FakeBrokers:
    return FakeBrokers(dict.fromkeys(range(4), 1))


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
async def fetcher(brokers: FakeBrokers, reports: Reports) -> AsyncIterator[Fetcher]:
    fetcher = make_fetcher(brokers, reports)
    yield fetcher
    await fetcher.close()


class Disk:
    """The batches of a broker by partition, each with the offset after it; a fetch brings those from the requested offset on."""

    def __init__(self, **batches: list[tuple[int, bytes]]) -> None:
        self.batches = {int(name[1:]): data for name, data in batches.items()}
        self.offsets: dict[int, int] = {}

    def answer(self, body: bytes) -> bytes:
        (_, epoch), asked, forgotten = targets_of(body)
        if epoch == 0:
            self.offsets = {}
        self.offsets |= asked
        for partition in forgotten:
            del self.offsets[partition]
        data = {
            partition: b"".join(batch for end, batch in self.batches[partition] if end > offset)
            for partition, offset in self.offsets.items()
        }
        return fetched([found(records, partition) for partition, records in data.items() if records])


def changed(data: bytes, at: int, value: bytes, *, is_sealed: bool = False) -> bytes:
    whole = bytearray(data)
    whole[at : at + len(value)] = value
    return sealed(whole) if is_sealed else bytes(whole)


BROKEN: dict[str, bytes] = {
    "one bit of a record": changed(GOOD, len(GOOD) - 1, bytes([GOOD[-1] ^ 1])),
    "one bit of the head": changed(GOOD, 30, bytes([GOOD[30] ^ 1])),
    "a bit that makes it a control batch": changed(GOOD, 22, b"\x20"),
    "magic 1": changed(GOOD, 16, b"\x01"),
    "a length of nothing": changed(GOOD, 8, (-12).to_bytes(4, "big", signed=True)),
    "a length below its head": changed(GOOD, 8, (40).to_bytes(4, "big")),
    "a length beyond the answer": changed(GOOD, 8, (1 << 20).to_bytes(4, "big")),
    "an offset below what was asked for": changed(GOOD, 0, (1).to_bytes(8, "big")),
    "a last offset below the first": changed(GOOD, 23, (-1).to_bytes(4, "big", signed=True), is_sealed=True),
    "fewer records than it says": changed(GOOD, 57, (3).to_bytes(4, "big"), is_sealed=True),
    "more records than it says": changed(GOOD, 57, (1).to_bytes(4, "big"), is_sealed=True),
    "a record behind its last offset": changed(GOOD, 23, bytes(4), is_sealed=True),
    "gzip that is none": changed(GOOD, 22, b"\x01", is_sealed=True),
    "snappy that is none": changed(GOOD, 22, b"\x02", is_sealed=True),
    "lz4 that is none": changed(GOOD, 22, b"\x03", is_sealed=True),
    "zstd that is none": changed(GOOD, 22, b"\x04", is_sealed=True),
    "a codec that nobody knows": changed(GOOD, 22, b"\x07", is_sealed=True),
    "less than a head": GOOD[:60],
}


@pytest.mark.parametrize("damage", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2, 0)], ids=["first", "second", "last"])
async def test_a_damaged_batch_is_an_alarm_of_its_partition_alone(
    fetcher: Fetcher, brokers: FakeBrokers, reports: Reports, damage: bytes, order: tuple[int, ...]
) -> None:
    brokers.always = Disk(p0=[(7, damage)], p1=[(7, GOOD)], p2=[(7, GOOD)]).answer
    for partition in order:
        fetcher.follow(partition, 3, 5, 7)
    await wait_until(lambda: len([line for line in reports.lines if "ended" in line or "alarm" in line]) == 3)
    for partition in (1, 2):
        assert f"{partition} instance 3: 5 a, 6 b" in reports.lines
        assert f"{partition} instance 3: ended at 7" in reports.lines
    (alarm,) = (line for line in reports.lines if "alarm" in line)
    assert alarm.startswith(("0 instance 3: alarm, the record batch at offset 5 is damaged: ",
                             "0 instance 3: alarm, the record batch at offset 6 is damaged: "))  # fmt: skip
    assert brokers.refreshes, "another broker may lead, whose copy is whole"


async def test_damaged_batch_after_others_is_named_with_its_own_offset(
    fetcher: Fetcher, brokers: FakeBrokers, reports: Reports
) -> None:
    brokers.always = Disk(p0=[(7, GOOD), (8, changed(batch(7, [b"c"]), 40, b"x"))]).answer
    fetcher.follow(0, 3, 5)
    await wait_until(lambda: len(reports.lines) == 3)
    assert reports.lines == [
        "0 instance 3: 5 a, 6 b",
        "0 instance 3: stands at 7",
        "0 instance 3: alarm, the record batch at offset 7 is damaged: its checksum is wrong",
    ]


@pytest.mark.parametrize("base_offset", [4, 6])
async def test_a_batch_that_begins_before_the_end_of_the_one_before_is_damaged(
    fetcher: Fetcher, brokers: FakeBrokers, reports: Reports, base_offset: int
) -> None:
    """The base offset is not in the checksum, and a record that is reported under a wrong offset counts for no reader."""
    brokers.always = Disk(p0=[(7, GOOD), (9, batch(base_offset, [b"x", b"y", b"z"]))]).answer
    fetcher.follow(0, 3, 5)
    await wait_until(lambda: len(reports.lines) >= 3)
    assert reports.lines[2].startswith("0 instance 3: alarm, the record batch at offset 7 is damaged: its head says ")


async def test_a_batch_that_a_broker_cannot_read_is_damaged_as_well(
    fetcher: Fetcher, brokers: FakeBrokers, reports: Reports
) -> None:
    brokers.always = lambda _: fetched([found(b"", error_code=2)])
    fetcher.follow(0, 3, 5)
    await wait_until(lambda: bool(reports.lines))
    assert reports.lines == ["0 instance 3: alarm, the record batch at offset 5 is damaged: the broker cannot read it"]
    assert len(brokers.requests) == 2


async def test_a_batch_that_was_damaged_on_its_way_is_fetched_again_and_reported(
    fetcher: Fetcher, brokers: FakeBrokers, reports: Reports
) -> None:
    brokers.withhold_answers()
    brokers.always = lambda _: fetched([])
    fetcher.follow(0, 3, 5)
    await answer(
        brokers,
        fetched([found(BROKEN["one bit of a record"])]),
        fetched([found(GOOD + changed(batch(7, [b"c"]), 40, b"x"))]),
        fetched([found(batch(7, [b"c"]))]),
    )
    assert reports.lines == [
        "0 instance 3: 5 a, 6 b",
        "0 instance 3: stands at 7",
        "0 instance 3: 7 c",
        "0 instance 3: stands at 8",
    ]
    assert [targets_of(body)[1] for _, _, body in brokers.requests] == [{0: 5}, {0: 5}, {0: 7}, {0: 8}]


async def test_a_batch_that_is_whole_at_another_leader_is_reported(
    fetcher: Fetcher, brokers: FakeBrokers, reports: Reports
) -> None:
    brokers.answers.extend([lambda _: fetched([found(BROKEN["one bit of a record"])])])
    brokers.always = Disk(p0=[(7, GOOD)]).answer
    brokers.elected[1] = {0: (2, 1)}
    fetcher.follow(0, 3, 5, 7)
    await wait_until(lambda: len(reports.lines) == 3)
    assert reports.lines == ["0 instance 3: 5 a, 6 b", "0 instance 3: stands at 7", "0 instance 3: ended at 7"]
    assert [broker_id for broker_id, _, _ in brokers.requests][:2] == [1, 2]


async def test_damaged_batch_is_fetched_twice_for_each_instance(
    fetcher: Fetcher, brokers: FakeBrokers, reports: Reports
) -> None:
    brokers.always = lambda _: fetched([found(BROKEN["magic 1"])])
    for instance in (3, 4):
        fetcher.follow(0, instance, 5)
        await wait_until(lambda: len(reports.lines) == instance - 2)  # noqa: B023 - waited for within the turn
    assert reports.lines == [
        f"{0} instance {instance}: alarm, the record batch at offset 5 is damaged: its magic is 1"
        for instance in (3, 4)
    ]
    assert len(brokers.requests) == 4


@pytest.mark.parametrize("method", ["records_read", "position_reached", "own_records_read"])
async def test_a_bug_over_one_partition_ends_its_reading_alone(
    brokers: FakeBrokers, reports: Reports, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    tell: Callable[..., object] = getattr(reports, method)

    def fail(partition: int, *arguments: object) -> object:
        if partition == 0:
            raise ValueError("a bug")
        return tell(partition, *arguments)

    monkeypatch.setattr(reports, method, fail)
    sent = Sent(SentBatch(GOOD, 2, b"h0", b"h1", None)) if method == "own_records_read" else None
    fetcher = make_fetcher(brokers, reports, sent)
    brokers.always = Disk(p0=[(7, GOOD)], p1=[(7, GOOD)]).answer
    for partition in (0, 1):
        fetcher.follow(partition, 3, 5, 7)
    await wait_until(lambda: any("ended" in line for line in reports.lines))
    assert [line for line in reports.lines if "failed" in line] == ["0 instance 3: failed, ValueError('a bug')"]
    assert "1 instance 3: ended at 7" in reports.lines
    await fetcher.close()


async def test_last_fed_partition_is_fetched_last_without_a_session(
    fetcher: Fetcher, brokers: FakeBrokers, reports: Reports
) -> None:
    """A broker without room for a session serves in the order of the request, until the answer is full."""
    asked: list[list[int]] = []

    def serve_one(body: bytes) -> bytes:
        _, offsets, _ = targets_of(body)
        asked.append(list(offsets))
        first = next(iter(offsets))
        return fetched([found(batch(offsets[first], [b"x"]), first)], session_id=0)

    brokers.always = serve_one
    for partition in range(4):
        fetcher.follow(partition, 3, 5)
    await wait_until(lambda: len(asked) >= 8)
    assert sorted(each[0] for each in asked[:4]) == [0, 1, 2, 3]
    assert [each[0] for each in asked[4:8]] == [each[0] for each in asked[:4]]


async def test_no_slice_is_reported_again_when_batch_is_acknowledged_meanwhile(
    brokers: FakeBrokers,
) -> None:
    reports = Reports()
    own = SentBatch(b"as it was before the broker compressed it", 7, b"o0", b"o6", None)
    sent = Sent(own)
    fetcher = make_tail(FakeBrokers({}), reports, sent.batches, CONFIG)
    fetcher.follow(0, 1, 0)
    values = [b"%d" % number for number in range(7)]
    answer = batch(0, [b"x", b"y"]) + batch(2, values, header=b"o") + batch(9, [b"next"])
    telling = fetcher.deliver(0, fetcher._partitions[0], Fetched(0, 0, 99, 0, False, answer))
    next(telling)  # others have their turn before the third record is reported
    fetcher.on_acknowledged(0, own, 2)
    for _ in telling:
        pass
    assert reports.lines == [
        "0 instance 1: 0 x, 1 y",
        "0 instance 1: stands at 2",
        "0 instance 1: 7 own from 2",
        "0 instance 1: stands at 9",
        "0 instance 1: 9 next",
        "0 instance 1: stands at 10",
    ]
    await fetcher.close()


async def test_position_moved_by_acknowledgement_keeps_its_leader_epoch() -> None:
    """With the epoch of an older leader, the next fetch would look like one of a truncated log."""
    reports = Reports()
    own, next_own = (SentBatch(b"%d" % number, 3, b"o%d" % number, b"", None) for number in range(2))
    sent = Sent(own, next_own)
    fetcher = make_tail(FakeBrokers({}), reports, sent.batches, CONFIG)
    fetcher.follow(0, 1, 0)
    followed = fetcher._partitions[0]
    whole = batch(0, [b"x", b"y"]) + batch(2, [b"a", b"b", b"c"])
    telling = fetcher.deliver(0, followed, Fetched(0, 0, 99, 0, False, whole))
    next(telling)
    fetcher.on_acknowledged(0, own, 2)
    fetcher.on_acknowledged(0, next_own, 5)
    for _ in telling:
        pass
    assert (followed.offset, followed.last_epoch) == (8, -1)
    await fetcher.close()
