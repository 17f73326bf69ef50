"""The log as the runtime sees it, over a fake cluster: loads, tails, appends and cuts."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.kafka.protocol import requests
from holdfast.kafka.protocol.api_keys import FETCH, LIST_OFFSETS, METADATA, PRODUCE
from holdfast.runtime.kafka_log.log import KafkaLog
from tests.pure.kafka.brokers.fake_brokers import batch
from tests.pure.runtime.kafka_log.fake_cluster import FakeCluster
from tests.pure.runtime.kafka_log.log_world import Listener, in_epoch, make_log, turns
from tests.simulated.cluster.inside import fetchers_of
from tests.waiting import PATIENCE_MS, wait_until


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster(monkeypatch, {0: (1, 3), 1: (2, 3)})


@pytest.fixture
def reports() -> Listener:
    return Listener()


@pytest.fixture
async def log(cluster: FakeCluster, reports: Listener) -> AsyncIterator[KafkaLog]:
    log = make_log(cluster)
    await log.start(reports)
    yield log
    await log.close(1)


async def test_records_of_dropped_owner_are_never_sent(log: KafkaLog, cluster: FakeCluster, reports: Listener) -> None:
    """Its callers were told that this node is not the coordinator; if the records were sent before the new checkpoint, they would count."""
    log.start_reading(0, 1)
    await wait_until(lambda: "0 instance 1: caught up at 0" in reports.lines)
    cluster.held.add((1, PRODUCE))
    log.append(0, b"k", b"in flight", b"h1")
    await cluster.wait_asked(1, PRODUCE)
    log.append(0, b"k", b"dropped", b"h2")
    log.stop_reading(0)
    log.start_reading(0, 2)
    log.append(0, b"k", b"checkpoint", b"h3")
    cluster.release_answers(1, PRODUCE)
    await cluster.wait_asked(1, PRODUCE, 2)
    await turns()
    assert cluster.produced == [(1, 0, [b"in flight"]), (1, 0, [b"checkpoint"])]
    assert [sent.first_header for sent in log._sent._by_partition[0]] in ([b"h3"], [])


async def test_batches_of_stopped_partition_are_compared_no_more(
    log: KafkaLog, cluster: FakeCluster, reports: Listener
) -> None:
    """Otherwise its oldest batch stays an old one for ever, and no later one is found by the answer to its Produce."""
    cluster.base_offset = 7  # it is not found there without a fetch
    log.start_reading(0, 1)
    log.append(0, b"k", b"old", b"h1")
    await cluster.wait_asked(1, PRODUCE)
    await turns()
    assert len(log._sent._by_partition[0]) == 1
    log.stop_reading(0)
    log.start_reading(0, 2)
    await wait_until(lambda: "0 instance 2: caught up at 0" in reports.lines)
    cluster.base_offset = 0
    log.append(0, b"k", b"checkpoint", b"h2")
    await wait_until(lambda: "0 instance 2: 1 own from 0" in reports.lines)
    assert not log._sent._by_partition[0]


async def test_close_does_not_send_records_of_stopped_partition(log: KafkaLog, cluster: FakeCluster) -> None:
    log.append(0, b"k", b"dropped", b"h1")
    log.append(1, b"k", b"kept", b"h1")
    log.stop_reading(0)
    assert await log.close(5)
    assert cluster.produced == [(2, 1, [b"kept"])]


async def test_nothing_is_sent_after_a_close(log: KafkaLog, cluster: FakeCluster) -> None:
    assert await log.close(5)
    log.append(0, b"k", b"too late", b"h1")
    await turns()
    assert cluster.produced == []


@pytest.mark.parametrize("answers_before", [0, 1], ids=["start", "end"])
async def test_bounds_that_a_leader_of_the_past_returns_late_are_not_believed(
    log: KafkaLog, cluster: FakeCluster, reports: Listener, answers_before: int
) -> None:
    """An old end would look like a log that lost its end, which is an alarm."""
    cluster.offsets = {(1, 0): (0, 5), (2, 0): (2, 9)}
    cluster.held.add((1, LIST_OFFSETS))
    log.start_reading(0, 1)
    await cluster.wait_asked(1, LIST_OFFSETS)
    if answers_before:
        cluster.release_answers(1, LIST_OFFSETS)
        cluster.held.add((1, LIST_OFFSETS))
        await cluster.wait_asked(1, LIST_OFFSETS, 2)
    cluster.leaders[0] = (2, 4)
    await log._brokers.refresh()
    cluster.release_answers(1, LIST_OFFSETS)
    await wait_until(lambda: bool(reports.lines))
    assert reports.lines == ["0 instance 1: failed, no broker returned its start and end"]
    log.start_reading(0, 2)
    await wait_until(lambda: "0 instance 2: from 2 to 9" in reports.lines)


async def test_log_cut_between_queries_of_its_bounds_ends_above_its_start(
    log: KafkaLog, cluster: FakeCluster, reports: Listener
) -> None:
    cluster.offsets = {(1, 0): (0, 5)}
    cluster.held.add((1, LIST_OFFSETS))
    log.start_reading(0, 1)
    await cluster.wait_asked(1, LIST_OFFSETS)
    cluster.release_answers(1, LIST_OFFSETS)
    cluster.held.add((1, LIST_OFFSETS))
    await cluster.wait_asked(1, LIST_OFFSETS, 2)
    cluster.offsets = {(1, 0): (9, 9)}
    cluster.release_answers(1, LIST_OFFSETS)
    await wait_until(lambda: bool(reports.lines))
    assert reports.lines == ["0 instance 1: from 0 to 9"]


async def test_first_fetch_of_tail_finds_that_log_lost_loaded_records(
    log: KafkaLog, cluster: FakeCluster, reports: Listener
) -> None:
    """Source: KIP-320; without the leader epoch of the last batch the leader is not asked whether it still has that batch."""
    cluster.offsets = {(1, 0): (0, 2)}
    cluster.records[1, 0].append((2, in_epoch(3, batch(0, [b"a", b"b"]))))
    cluster.diverging.add(0)
    log.start_reading(0, 1)
    await wait_until(lambda: sum(0 in epochs for epochs in cluster.last_epochs) == 2)
    assert [epochs[0] for epochs in cluster.last_epochs if 0 in epochs] == [-1, 3]
    await wait_until(lambda: len(reports.lines) >= 5)
    assert reports.lines[-2:] == [
        "0 instance 1: caught up at 2",
        "0 instance 1: alarm, the log was truncated below offset 2",
    ]


async def test_a_load_that_read_nothing_gives_the_tail_no_leader_epoch(
    log: KafkaLog, cluster: FakeCluster, reports: Listener
) -> None:
    cluster.offsets = {(1, 0): (4, 4)}
    log.start_reading(0, 1)
    await wait_until(lambda: "0 instance 1: caught up at 4" in reports.lines)
    await cluster.wait_asked(1, FETCH)
    await wait_until(lambda: bool(cluster.last_epochs))
    assert cluster.last_epochs[0] == {0: -1}


async def test_acknowledged_checkpoint_at_load_end_proves_nothing_below_it(
    log: KafkaLog, cluster: FakeCluster, reports: Listener
) -> None:
    """The log may have lost its end and have grown to the same offset again, under others."""
    cluster.offsets = {(1, 0): (0, 2)}
    cluster.records[1, 0].append((2, in_epoch(3, batch(0, [b"a", b"b"]))))
    cluster.diverging.add(0)
    cluster.base_offset = 2
    reports.at_caught_up = lambda: cluster.held.add((1, FETCH))
    log.start_reading(0, 1)
    await wait_until(lambda: "0 instance 1: caught up at 2" in reports.lines)
    log.append(0, b"k", b"checkpoint", b"h1")
    await cluster.wait_asked(1, PRODUCE)
    await turns()
    cluster.release_answers(1, FETCH)
    await wait_until(lambda: "caught up" not in reports.lines[-1])
    assert reports.lines[-1] == "0 instance 1: alarm, the log was truncated below offset 2"


async def test_late_log_start_of_former_leader_is_not_believed(
    log: KafkaLog, cluster: FakeCluster, reports: Listener
) -> None:
    cluster.held.add((1, LIST_OFFSETS))
    log.query_log_start(0, 1)
    await cluster.wait_asked(1, LIST_OFFSETS)
    cluster.leaders[0] = (2, 4)
    await log._brokers.refresh()
    cluster.release_answers(1, LIST_OFFSETS)
    await wait_until(lambda: bool(reports.lines))
    assert reports.lines == ["0 instance 1: log start None"]


async def test_reading_that_was_stopped_over_its_bounds_never_begins(
    log: KafkaLog, cluster: FakeCluster, reports: Listener
) -> None:
    cluster.held.add((1, LIST_OFFSETS))
    log.start_reading(0, 1)
    await cluster.wait_asked(1, LIST_OFFSETS)
    log.stop_reading(0)
    cluster.release_answers(1, LIST_OFFSETS)
    await turns()
    assert reports.lines == []
    assert cluster.asked.count((1, LIST_OFFSETS)) == 1
    assert (1, FETCH) not in cluster.asked


async def test_reading_stopped_while_bounds_are_reported_never_begins(
    log: KafkaLog, cluster: FakeCluster, reports: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "read_started", lambda partition, *_: log.stop_reading(partition))
    cluster.offsets = {(1, 0): (0, 5), (2, 1): (5, 5)}
    for partition in (0, 1):
        log.start_reading(partition, 1)
    await cluster.wait_asked(1, LIST_OFFSETS, 2)
    await cluster.wait_asked(2, LIST_OFFSETS, 2)
    await turns()
    assert reports.lines == []
    assert not {(1, FETCH), (2, FETCH)} & {*cluster.asked}


async def test_load_reads_from_its_offset_but_not_below_log_start(
    log: KafkaLog, cluster: FakeCluster, reports: Listener
) -> None:
    cluster.offsets = {(1, 0): (0, 3), (2, 1): (2, 3)}
    for broker_id, partition in cluster.offsets:
        cluster.records[broker_id, partition] = [(n + 1, batch(n, [b"%d" % n])) for n in range(3)]
        log.start_reading(partition, 1, 1)
    await wait_until(lambda: len([line for line in reports.lines if "caught up at 3" in line]) == 2)
    assert [line for line in reports.lines if line.startswith("0")] == [
        "0 instance 1: from 0 to 3",
        "0 instance 1: 1 1",
        "0 instance 1: stands at 2",
        "0 instance 1: 2 2",
        "0 instance 1: stands at 3",
        "0 instance 1: caught up at 3",
    ]
    assert [line for line in reports.lines if line.startswith("1")][1] == "1 instance 1: 2 2"


async def test_load_stopped_at_its_last_record_has_no_tail(
    log: KafkaLog, cluster: FakeCluster, reports: Listener
) -> None:
    cluster.offsets = {(1, 0): (0, 1)}
    cluster.records[1, 0] = [(1, batch(0, [b"a"]))]
    reports.at_records = lambda: log.stop_reading(0)
    log.start_reading(0, 1)
    await wait_until(lambda: len(reports.lines) >= 2)
    await turns()
    assert "0 instance 1: caught up at 1" not in reports.lines
    assert not fetchers_of(log)[0]._partitions


async def test_a_partition_is_there_while_somebody_leads_it(log: KafkaLog, cluster: FakeCluster) -> None:
    assert log.has_partition(0)
    assert not log.has_partition(2)
    cluster.leaders[0] = (-1, 4)
    await log._brokers.refresh()
    assert not log.has_partition(0)


async def test_a_read_index_beyond_the_tail_has_it_fetch_at_once(cluster: FakeCluster, reports: Listener) -> None:
    log = make_log(cluster)
    tail, _ = fetchers_of(log)
    tail._config = tail._config._replace(fetch_wait_ms=10 * PATIENCE_MS)
    await log.start(reports)
    log.start_reading(0, 1)
    await wait_until(lambda: "0 instance 1: caught up at 0" in reports.lines)
    await cluster.wait_asked(1, FETCH)
    cluster.held.add((1, FETCH))
    await cluster.wait_asked(1, FETCH, 2)
    log.append(0, b"k", b"ours", b"h1")
    await wait_until(lambda: "0 instance 1: 1 own from 0" in reports.lines)
    cluster.release_answers(1, FETCH)
    await turns()
    asked = cluster.asked.count((1, FETCH))
    await turns()
    assert cluster.asked.count((1, FETCH)) == asked, "while ours are found without a fetch, it waits"
    cluster.offsets = {(1, 0): (0, 2)}
    cluster.records[1, 0] = [(2, batch(1, [b"theirs"]))]
    log.query_latest_offsets(1, [0])
    await wait_until(lambda: "round 1: {0: 2}" in reports.lines)
    await turns()
    assert "0 instance 1: 1 theirs" in reports.lines
    await log.close(1)


@pytest.mark.parametrize("end_offset", [0, 9], ids=["tail", "load"])
async def test_a_partition_that_is_stopped_is_fetched_no_more(
    log: KafkaLog, cluster: FakeCluster, reports: Listener, end_offset: int
) -> None:
    cluster.offsets = {(1, 0): (0, end_offset)}
    log.start_reading(0, 1)
    await cluster.wait_asked(1, FETCH, 2)
    assert cluster.sessions[1] == {0: 0}
    log.stop_reading(0)
    log.start_reading(1, 1)  # led by the other broker
    await turns()
    reports.lines.clear()
    cluster.records[1, 0] = [(1, batch(0, [b"too late"]))]
    asked = cluster.asked.count((1, FETCH))
    await cluster.wait_asked(2, FETCH, 5)
    await turns()
    assert cluster.asked.count((1, FETCH)) == asked
    assert not [line for line in reports.lines if line.startswith("0")]


async def test_query_before_close_is_never_answered(cluster: FakeCluster, reports: Listener) -> None:
    log = make_log(cluster)
    await log.start(reports)
    cluster.held |= {(1, LIST_OFFSETS), (2, LIST_OFFSETS)}
    log.start_reading(0, 1)
    log.query_log_start(1, 1)
    log.query_latest_offsets(1, [1])
    await cluster.wait_asked(1, LIST_OFFSETS)
    await cluster.wait_asked(2, LIST_OFFSETS, 2)
    assert await log.close(5)
    for broker_id in (1, 2):
        cluster.release_answers(broker_id, LIST_OFFSETS)
    await turns()
    assert reports.lines == []
    assert not {task for task in asyncio.all_tasks() if task.get_name().startswith("holdfast-")}


async def test_a_batch_that_is_given_up_is_reported_to_its_owner(cluster: FakeCluster, reports: Listener) -> None:
    log = make_log(cluster, message_timeout_ms=1)
    await log.start(reports)
    cluster.error_code = 7
    log.append(0, b"k", b"v", b"h1")
    await wait_until(lambda: bool(reports.lines))
    assert reports.lines[0].startswith("0: append failed, the broker answered REQUEST_TIMED_OUT (7)")
    await log.close(1)


async def test_the_time_until_a_sampled_record_was_found_in_the_log_is_taken(
    log: KafkaLog, cluster: FakeCluster, reports: Listener
) -> None:
    log.start_reading(0, 1)
    await wait_until(lambda: "0 instance 1: caught up at 0" in reports.lines)
    log.append(0, b"k", b"v", b"h1")
    await wait_until(lambda: "0 instance 1: 1 own from 0" in reports.lines)
    assert log._metrics.event_purgatory_time.count == 1


async def test_answer_to_tail_is_a_sign_of_life_of_the_broker(
    log: KafkaLog, cluster: FakeCluster, reports: Listener
) -> None:
    log.start_reading(0, 1)
    await wait_until(lambda: "0 instance 1: caught up at 0" in reports.lines)
    before_s = asyncio.get_running_loop().time()
    await wait_until(lambda: log._offsets._alive_s[1] > before_s)
    assert cluster.asked.count((1, LIST_OFFSETS)) == 2, "nothing was asked for but where the load begins and ends"


async def test_frozen_leader_is_believed_only_if_another_broker_names_it(
    cluster: FakeCluster, reports: Listener
) -> None:
    """While it was frozen another broker may have become leader, and it would answer with the former end of the log."""
    log = make_log(cluster)
    await log.start(reports)
    log.start_reading(0, 1)
    await wait_until(lambda: "0 instance 1: caught up at 0" in reports.lines)
    # A machine that stalls would end the read by such times.
    log._offsets._silence_max_s = 0.1
    log._offsets._confirm_timeout_s = 1.0
    cluster.held |= {(1, FETCH), (2, METADATA)}
    loop = asyncio.get_running_loop()
    await wait_until(lambda: any(place[:2] == (1, FETCH) for place in cluster.waiting))
    frozen_s = loop.time()
    await wait_until(lambda: loop.time() - frozen_s > 0.1)
    cluster.release_answers(1, FETCH)
    log.query_latest_offsets(1, [0])
    await wait_until(lambda: "round 1: {0: None}" in reports.lines)
    cluster.release_answers(2, METADATA)
    await log._brokers.refresh()
    number = 1
    while "{0: 0}" not in reports.lines[-1]:
        number += 1
        log.query_latest_offsets(number, [0])
        await wait_until(lambda: reports.lines[-1].startswith(f"round {number}: "))  # noqa: B023 - waited for within the turn
        assert number < 20
    assert log._brokers.confirmed_s(1) > frozen_s
    await log.close(1)


async def test_records_are_deleted_at_the_leader_and_the_new_start_is_reported(
    cluster: FakeCluster, reports: Listener
) -> None:
    log = make_log(cluster, request_timeout_ms=7_000)
    await log.start(reports)
    cluster.offsets = {(1, 0): (0, 50), (2, 1): (0, 50)}
    log.delete_records(1, 30)
    await wait_until(lambda: bool(reports.lines))
    assert reports.lines == ["1: log starts at 30, as asked"]
    assert cluster.cut == [(2, 1, 30, 7_000)]
    log.query_log_start(1, 1)
    await wait_until(lambda: len(reports.lines) == 2)
    assert reports.lines[1] == "1 instance 1: log start 30"
    await log.close(1)


async def test_broker_that_claims_a_larger_deletion_is_not_believed(
    cluster: FakeCluster, reports: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log(cluster)
    await log.start(reports)
    monkeypatch.setattr(requests, "decode_deleted", lambda _: (0, 2**40))
    log.delete_records(1, 30)
    await wait_until(lambda: bool(reports.lines))
    assert reports.lines == ["1: log starts at 30, as asked"]
    await log.close(1)


async def test_failed_cut_is_reported_with_its_reason(log: KafkaLog, cluster: FakeCluster, reports: Listener) -> None:
    """The pruner waits for the result, and does not prune before it comes."""
    cluster.error_code = 42
    log.delete_records(0, 30)
    await wait_until(lambda: bool(reports.lines))
    assert reports.lines.pop() == "0: log starts at None, the broker answered INVALID_REQUEST (42)"
    log.delete_records(9, 30)
    await wait_until(lambda: bool(reports.lines))
    line = reports.lines.pop()
    assert line.startswith("9: log starts at None, ")
    assert not line.endswith(("as asked", ", "))
    assert len(cluster.cut) == 1


async def test_stopped_reading_does_not_hear_of_missing_bounds(
    log: KafkaLog, cluster: FakeCluster, reports: Listener
) -> None:
    cluster.held.add((1, LIST_OFFSETS))
    log.start_reading(0, 1)
    await cluster.wait_asked(1, LIST_OFFSETS)
    log.stop_reading(0)
    cluster.leaders[0] = (2, 4)
    await log._brokers.refresh()
    cluster.release_answers(1, LIST_OFFSETS)
    await wait_until(lambda: not log._tasks)
    assert reports.lines == []


async def test_a_close_leaves_nothing_that_goes_on(cluster: FakeCluster, reports: Listener) -> None:
    before = asyncio.all_tasks()
    log = make_log(cluster)
    await log.start(reports)
    cluster.offsets = {(1, 0): (0, 0), (2, 1): (0, 9)}  # a tail, and a load whose end never comes
    for partition in (0, 1):
        log.start_reading(partition, 1)
    await cluster.wait_asked(1, FETCH, 2)
    await cluster.wait_asked(2, FETCH, 2)
    assert await log.close(5)
    await wait_until(lambda: not {task for task in asyncio.all_tasks() - before if not task.done()})


async def test_its_connections_poll_for_answers_for_as_long_as_the_setting_says(cluster: FakeCluster) -> None:
    log = make_log(cluster, busy_poll_us=700)
    assert log._brokers._options.busy_polling._window_s == 700 / 1e6
