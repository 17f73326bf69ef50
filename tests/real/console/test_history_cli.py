"""`holdfast history` and `holdfast diff` on a real broker: the past from the history, the rest from the log."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from holdfast.cli import main
from holdfast.console.outcomes import Exit
from holdfast.console.sources.kafka_reader import KafkaReader
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.page.source import HISTORY, LOG, to_json
from holdfast.records.share.keys import SharePartitionKey, format_key
from tests.pure.console.history_writer import Stamped, rows_of, write_batch
from tests.pure.records.logs import LogWriter, write_log
from tests.real.job.folded_log import write_records
from tests.real.nodes import topic_id_of
from tests.real.page.opened import groups_when, page_of
from tests.real.running_node import cut
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S, Lines, block_until

pytestmark = pytest.mark.real

MOVES = ["write"] * 40 + ["delete", "take", "zombie", "foreign"] + ["write"] * 20


class Past(NamedTuple):
    """A log that was cut, and the history of its beginning."""

    log: LogWriter
    kafka: str
    state_topic: str
    directory: Path
    group: str

    def arguments(self, command: str, *arguments: str) -> list[str]:
        named = ["--state-topic", self.state_topic, "--history-dir", str(self.directory), "--job-group", self.group]
        return [command, *arguments, *named, "--bootstrap-server", self.kafka, "--json"]

    def run(self, command: str, *arguments: str) -> Result:
        result = CliRunner().invoke(main, self.arguments(command, *arguments))
        assert result.exception is None or isinstance(result.exception, SystemExit), "a traceback reached the user"
        return result

    def states(self) -> dict[str, tuple[str, int | None]]:
        """Return status and start offset of every share partition of all groups, as they are now."""
        found: dict[str, tuple[str, int | None]] = {}
        for row in json.loads(self.run("diff", "--from", "0").stdout):
            state = row["to"]["state"]
            found[row["share_partition"]] = row["to"]["status"], state and state["start_offset"]
        return found

    def commit(self, offset: int) -> None:
        """Say how far the job is."""
        admin = AdminClient({"bootstrap.servers": self.kafka})
        asked = ConsumerGroupTopicPartitions(self.group, [TopicPartition(self.state_topic, 0, offset)])

        def is_committed() -> bool:
            reports = admin.alter_consumer_group_offsets([asked])[self.group].result(PATIENCE_S).topic_partitions or []
            return reports[0].error is None

        block_until(is_committed, "a broker that has just started and makes the topic of these offsets first")


@pytest.fixture
def past(kafka: str, new_topic: NewTopicFactory, tmp_path: Path) -> Past:
    """Give a log whose beginning is in the history only, and whose end is in the log only; in between it is in both."""
    log = write_log(11, [*MOVES, "cut", "write", "write", "write"])
    state_topic = new_topic(1, message_timestamp_type="LogAppendTime")
    write_records(kafka, state_topic, log.records)
    now_ms = round(time.time() * 1_000)
    stamped = [Stamped(record, now_ms - 3_600_000 + record.offset * 1_000) for record in log.records]
    rows = [row for row in rows_of(0, stamped) if row["offset"] < log.log_start + 2]
    write_batch(tmp_path, topic_id_of(kafka, state_topic), "a-0", rows)
    cut(kafka, state_topic, 0, log.log_start)
    past = Past(log, kafka, state_topic, tmp_path, f"job-of-{state_topic}")
    past.commit(log.log_start + 2)
    return past


def live(log: LogWriter) -> dict[str, tuple[str, int | None]]:
    return {format_key(key): ("live", state.start_offset) for key, state in log.states.items()}


def test_history_and_log_together_have_every_change_once(past: Past) -> None:
    assert {key: answer for key, answer in past.states().items() if answer[0] == "live"} == live(past.log)
    for key, state in past.log.states.items():
        named = (key.group_id, format_topic_id(key.topic_id), str(key.partition))
        (now,) = json.loads(past.run("history", *named).stdout)
        assert (now["status"], now["state"]["start_offset"]) == ("live", state.start_offset)
        changed = [row for row in rows_of(0, [Stamped(record, 0) for record in past.log.records]) if is_about(row, key)]
        assert now["log_offset"] == changed[-1]["offset"]
        (compared,) = json.loads(past.run("diff", *named, "--from", "0").stdout)
        assert compared["changes"] == len(changed)


async def test_the_page_tells_the_same_changes_of_an_offset(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    # What takes longer than a reader is to wait is told in part only.
    for bound in ("past.READ_S", "reading._LOOK_S", "reading._TURN_S"):
        monkeypatch.setattr(f"holdfast.page.{bound}", PATIENCE_S)
    sources = set[str]()
    async with page_of(past.kafka, (past.state_topic,), str(past.directory)) as page:
        await groups_when(page)
        for key in past.log.states:
            named = (key.group_id, format_topic_id(key.topic_id), key.partition)
            for offset in (7, 40):
                told = await asyncio.to_thread(past.run, "history", *map(str, named), "--offset", str(offset))
                shown = to_json(await page.timeline(*named, offset))
                assert json.loads(told.stdout or "[]") == shown["changes"]
                sources |= {change["source"] for change in shown["changes"]}
    assert sources == {HISTORY, LOG}


def is_about(row: dict[str, Any], key: SharePartitionKey) -> bool:
    return (row["group_id"], row["partition"]) == (key.group_id, key.partition)


def test_what_is_in_neither_is_said_to_be_lost(past: Past) -> None:
    """As after a job that was away for so long that the log was cut past it."""
    past.commit(past.log.log_start - 1)
    result = past.run("diff", "--from", "0")
    assert (
        f"Log partition 0: the history ends before offset {past.log.log_start - 1}, and the log starts at "
        f"{past.log.log_start}; what was between is lost" in result.stderr
    )
    # What lives has a snapshot in the log, so it is certain all the same.
    assert {key: state for key, state in past.states().items() if state[0] == "live"} == live(past.log)


def test_a_log_that_is_cut_after_its_start_was_queried_is_named(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = KafkaReader.committed

    def cutting(reader: KafkaReader, group: str, topic: str) -> dict[int, int]:
        cut(past.kafka, past.state_topic, 0, past.log.log_start + 2)
        return committed(reader, group, topic)

    with monkeypatch.context() as patch:
        patch.setattr(KafkaReader, "committed", cutting)
        result = past.run("diff", "--from", "0")
    assert result.exit_code == Exit.FAILED
    assert f"{past.state_topic} partition 0 was cut while it was read (" in result.stderr
    assert result.stderr.endswith("; run the command again.\n")
    assert past.run("diff", "--from", "0").exit_code == Exit.DONE


def test_following_prints_what_comes(past: Past) -> None:
    log, key = past.log, max(past.log.states)
    named = (key.group_id, format_topic_id(key.topic_id), str(key.partition))
    command = [sys.executable, "-m", "holdfast", *past.arguments("history", *named, "--follow")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        try:
            assert following.stdout is not None
            assert following.stderr is not None
            lines = Lines(following.stdout)
            first = json.loads(lines.next())
            assert first["state"]["start_offset"] == log.states[key].start_offset
            written = len(log.records)
            while log.records[written:][-1:] == [] or not is_about(
                rows_of(0, [Stamped(record, 0) for record in log.records])[-1], key
            ):
                log.do("write")
            write_records(past.kafka, past.state_topic, log.records[written:])
            said = json.loads(lines.next())
            assert said["log_offset"] == len(log.records) - 1
            assert said["state"]["start_offset"] == log.states[key].start_offset
            following.send_signal(signal.SIGINT)
            assert following.wait(PATIENCE_S) == 0
            assert following.stderr.read() == ""
        finally:
            following.kill()


def test_a_topic_is_named_as_kafka_names_it(past: Past, new_topic: NewTopicFactory) -> None:
    unknown = past.run("history", "group:0", "no-such-topic", "0")
    assert (unknown.exit_code, "no-such-topic" in unknown.stderr) == (Exit.NOT_FOUND, True)
    nothing = past.run("history", "group:0", new_topic(1), "0")
    assert (nothing.exit_code, nothing.stderr) == (
        Exit.NOT_FOUND,
        "Error: Nothing is known of such a share partition at that time.\n",
    )
