"""docs/alarms.md: all that a node complains of is there, as the code words it, with what ends it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.brokers.silence import BrokerSilence
from holdfast.daemon.settings.components.log import LogSettings
from holdfast.daemon.topics.log_identity import FirstRecords, LogProblem, find_problem
from holdfast.daemon.topics.snapshot_topic import find_snapshot_problems
from holdfast.daemon.topics.state_topic import FIXED_CONFIG, StateTopic, TopicDisputed, confirm_topic, find_problems
from holdfast.kafka.protocol.requests import Fetched
from holdfast.metrics.registry import Registry
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, encode_checkpoint
from holdfast.records.log.header import encode_header
from holdfast.runtime.kafka_log.fetcher import _damage_error, _read_error
from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.partition.log_check import LogCheck
from holdfast.runtime.partition.ownership import OWNER_EPOCH_MAX
from holdfast.runtime.settings import LogIdentity
from holdfast.share.snapshots.restore import Refusal
from tests.pure.docs.pages import ROOT, as_pattern, table

PAGE = (ROOT / "docs" / "alarms.md").read_text()


def test_every_line_about_silent_brokers_is_described() -> None:
    silence, now_s = BrokerSilence(2_000, 1.0, 0.5, Registry(), lambda: 0.0), 0.0
    whole = {0: 1, 1: 2}
    with capture_logs() as lines:
        # (leaders, brokers that answer, for how many seconds), each followed by the time in which all is well
        for leaders, answering, seconds in ((whole, (), 5), (whole, (1,), 5), ({0: 1}, (1,), 5), (whole, (1,), 1)):
            for now_leaders, now_answering, lasting in ((leaders, answering, seconds), (whole, (1, 2), 5)):
                for _ in range(lasting):
                    now_s += 1.0
                    silence.look(now_s, now_leaders, 2, {1, 2}, dict.fromkeys(now_answering, now_s).get, 1.0)
                silence.leave_out(1)
    assert {row[0] for row in table(PAGE, "silences")} == {f"`{line['event']}`" for line in lines}


def test_every_reason_to_read_the_whole_log_is_described() -> None:
    assert [row[0] for row in table(PAGE, "refusals")] == [f"`{refusal.value}`" for refusal in Refusal]


def found_by(check: LogCheck) -> str:
    assert check.finding is not None
    return str(check.finding)


def alarms() -> list[str]:
    """Return one of each alarm that a partition can raise, as the code words it."""
    log = LogIdentity("cluster", bytes(16), 50)
    cut, lost, foreign, other = (LogCheck(7, log) for _ in range(4))
    cut.judge_start(5)
    lost.judge_lost_end(5, 9)
    foreign.judge_before_checkpoint(LogRecord(0, b"key", b"value", None), 0)
    other.judge_checkpoint(Checkpoint(1, bytes(16), "1", 1, "another", bytes(16), 50, None), 3)
    fetched = Fetched(0, error_code=0, high_watermark=5, log_start_offset=1, is_diverging=True, records=b"")
    return [
        *map(found_by, (cut, lost, foreign, other)),
        *(problem.text for problem in log_problems()),
        f"reading stopped at offset 9: {_read_error(fetched, 9, 'log', 'User:node').text}",
        f"reading stopped at offset 9: {_damage_error(9, 'its checksum is wrong').text}",
        f"owner epoch {OWNER_EPOCH_MAX} is the last one",
    ]


def log_problems() -> Iterator[LogProblem]:
    """Yield one of each problem that is found before anything is served."""
    for partition_count, topic_id, reason in (
        (49, bytes(16), None),
        (2, bytes([1] * 16), None),
        (2, bytes(16), "known"),
    ):
        log = LogIdentity("cluster", bytes(16), 2)
        first, second = FirstRecords(0, log), FirstRecords(1, log)
        value = encode_checkpoint(Checkpoint(1, bytes(16), "1", 1, "cluster", topic_id, partition_count, reason))
        first.read(LogRecord(0, CHECKPOINT_KEY, value, encode_header(1, 0)))
        problem = find_problem("state", log, (first, second))
        assert problem is not None
        yield problem


def test_every_alarm_is_described_with_the_command_that_ends_it() -> None:
    rows = [(as_pattern(line), what_to_do) for line, _, what_to_do in table(PAGE, "alarms")]
    described = {alarm: [what_to_do for pattern, what_to_do in rows if pattern.fullmatch(alarm)] for alarm in alarms()}
    assert [alarm for alarm, found in described.items() if len(found) != 1] == []
    assert len(rows) == len(described)
    for alarm, (what_to_do,) in described.items():
        assert "holdfast partitions accept 7" not in alarm or "`holdfast partitions accept 7" in what_to_do


SOUND: Final = {**FIXED_CONFIG, "min.insync.replicas": "2", "segment.bytes": "104857600"}
TOPIC: Final = StateTopic("state", bytes(16), 50, 3, 1_048_588)


@pytest.mark.parametrize(
    ("mark", "is_fatal", "found"),
    [
        (
            "topic findings",
            True,
            [
                (TOPIC, {"cleanup.policy": "compact"}),
                (TOPIC, {"retention.ms": "1"}),
                (TOPIC, {"retention.bytes": "1"}),
                (TOPIC, {"unclean.leader.election.enable": "true"}),
                (TOPIC, {"min.insync.replicas": "4"}),
            ],
        ),
        (
            "topic warnings",
            False,
            [
                (TOPIC._replace(replication_factor=1), {}),
                (TOPIC, {"min.insync.replicas": "1"}),
                (TOPIC, {"segment.bytes": "1"}),
                (TOPIC, {"compression.type": "gzip"}),
                (TOPIC, {"message.timestamp.type": "CreateTime"}),
                (TOPIC._replace(partition_count=51), {}),
            ],
        ),
    ],
)
def test_every_finding_about_the_topic_is_described(
    mark: str, is_fatal: bool, found: list[tuple[StateTopic, Mapping[str, str]]]
) -> None:
    rows = table(PAGE, mark)
    assert len(rows) == len(found)
    for (line, mending), (topic, config) in zip(rows, found, strict=True):
        (finding,) = find_problems(topic, {**SOUND, **config}, LogSettings(), "kafka:9092")
        assert finding.is_fatal is is_fatal
        assert as_pattern(line).fullmatch(finding.problem)
        if finding.command:
            assert as_pattern(mending.split("`")[1]).fullmatch(finding.command)


async def test_the_line_about_a_disputed_topic_is_described() -> None:
    async def topic_ids(_: str) -> dict[tuple[str, int], bytes | None]:
        return {("kafka-1", 9092): bytes(16), ("kafka-2", 9092): bytes(16), ("kafka-3", 9092): None}

    client: Any = SimpleNamespace(topic_ids=topic_ids)
    with pytest.raises(TopicDisputed) as disputed:
        await confirm_topic(client, TOPIC.name, TOPIC.topic_id)
    ((line, _),) = table(PAGE, "topic dispute")
    assert as_pattern(line).fullmatch(str(disputed.value))


def test_every_finding_about_the_snapshot_topic_is_described() -> None:
    fit = TOPIC._replace(name="snapshots", max_message_bytes=2 * TOPIC.max_message_bytes)
    found: list[tuple[StateTopic, Mapping[str, str], bool]] = [
        (fit, {"cleanup.policy": "delete"}, True),
        (fit._replace(partition_count=1), {}, True),
        (fit._replace(max_message_bytes=1_000_000), {}, True),
        (fit._replace(replication_factor=1), {}, False),
    ]
    rows = table(PAGE, "snapshot topic findings")
    for (line, mending), (topic, config, is_fatal) in zip(rows, found, strict=True):
        (finding,) = find_snapshot_problems(topic, {"cleanup.policy": "compact", **config}, TOPIC, "kafka:9092")
        assert finding.is_fatal is is_fatal
        assert as_pattern(line.removesuffix(" (a warning)")).fullmatch(finding.problem)
        assert not finding.command or as_pattern(mending.split("`")[1]).fullmatch(finding.command)
    assert not list(find_snapshot_problems(fit, {"cleanup.policy": "compact"}, TOPIC, "kafka:9092"))
