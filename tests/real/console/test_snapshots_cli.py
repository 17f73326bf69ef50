"""`holdfast snapshots` on a real broker, over a snapshot topic that a job left and over damaged ones."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from holdfast.cli import main
from holdfast.console.outcomes import Exit
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.share.keys import format_key
from holdfast.records.share.snapshot_store.entries import (
    DELETED,
    EntryKey,
    ManifestKey,
    decode_entry,
    decode_key,
    encode_entry,
)
from tests.pure.records.logs import LogWriter, write_log
from tests.real.job.folded_log import fold_batches, write_records, write_snapshots
from tests.real.nodes import topic_id_of
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.real

MOVES = ["write"] * 40 + ["delete", "take", "zombie", "foreign"] + ["write"] * 20


class Folded(NamedTuple):
    """A log, and all that a job wrote of it in two batches."""

    log: LogWriter
    written: dict[bytes, bytes]
    state_topic: str
    snapshot_topic: str
    kafka: str

    def run(self, *arguments: str, as_json: bool = True) -> Result:
        named = ["--state-topic", self.state_topic, "--snapshot-topic", self.snapshot_topic]
        named += ["--bootstrap-server", self.kafka, *(["--json"] if as_json else [])]
        result = CliRunner().invoke(main, ["snapshots", *arguments, *named])
        assert result.exception is None or isinstance(result.exception, SystemExit), "a traceback reached the user"
        return result

    def ask(self, *arguments: str, code: Exit = Exit.DONE) -> Any:
        result = self.run(*arguments)
        assert result.exit_code == code, result.stderr
        return json.loads(result.stdout)

    def write(self, changed: dict[bytes, bytes | None]) -> None:
        write_snapshots(self.kafka, self.snapshot_topic, changed)

    def newest_live(self) -> tuple[bytes, EntryKey]:
        """Return the newest entry of a share partition that lives, as bytes and decoded."""
        found = [(key_bytes, key) for key_bytes in self.written if isinstance(key := decode_key(key_bytes), EntryKey)]
        return max((each for each in found if each[1].key in self.log.states), key=lambda each: each[1].covered_offset)

    def manifests(self) -> list[bytes]:
        return [key for key in self.written if isinstance(decode_key(key), ManifestKey)]


@pytest.fixture
def make_folded(kafka: str, new_topic: NewTopicFactory) -> Callable[[list[str]], Folded]:
    """Give a function that writes a log of these moves, folds it in two batches and writes what comes of it."""

    def make(moves: list[str]) -> Folded:
        log = write_log(11, moves)
        state_topic, snapshot_topic = new_topic(1), new_topic(1, cleanup_policy="compact")
        written = fold_batches(topic_id_of(kafka, state_topic), log.records[:30], log.records[30:])
        write_records(kafka, state_topic, log.records)
        folded = Folded(log, written, state_topic, snapshot_topic, kafka)
        folded.write(dict(written))
        return folded

    return make


@pytest.fixture
def folded(make_folded: Callable[[list[str]], Folded]) -> Folded:
    """Give a log of ordinary moves, folded."""
    return make_folded(MOVES)


def test_what_a_job_wrote_is_listed_shown_and_true(folded: Folded) -> None:
    log = folded.log
    newest = decode_key(folded.manifests()[-1]).covered_offset
    (row,) = folded.ask("list")
    assert row == {
        "partition": 0,
        "manifest": newest,
        "lag": len(log.records) - 1 - newest,
        "live_keys": len(log.states),
        "entries": len(folded.written) - 2,
        "bytes": sum(len(key) + len(value) for key, value in folded.written.items()),
        "verified": True,
        "why_not": None,
    }
    answer = folded.ask("verify", "0")
    assert answer["differences"] == []
    assert answer["partitions"][0]["compared"] == len(
        {key.key for key in map(decode_key, folded.written) if isinstance(key, EntryKey)}
    )

    key_bytes, key = folded.newest_live()
    entry = decode_entry(folded.written[key_bytes])
    assert entry.snapshot is not None
    text = f"{key.key.group_id}:{format_topic_id(key.key.topic_id)}:{key.key.partition}"
    (shown,) = folded.ask("show", text)
    assert (shown["share_partition"], shown["covered_offset"]) == (format_key(key.key), key.covered_offset)
    assert shown["state"]["start_offset"] == log.states[key.key].start_offset
    assert (shown["update_count"], shown["snapshot_offset"]) == entry[1:]
    (earlier,) = folded.ask("show", text, "--at-offset", "29")
    assert earlier["covered_offset"] < 30 <= shown["covered_offset"]
    table = folded.run("show", text, as_json=False).stdout
    assert any(line.split() == ["covered", "offset", str(key.covered_offset)] for line in table.splitlines())


def test_an_entry_that_is_not_the_logs_is_found(folded: Folded) -> None:
    key_bytes, key = folded.newest_live()
    folded.write({key_bytes: encode_entry(DELETED)})
    (row,) = folded.ask("list")
    assert not row["verified"]
    assert row["why_not"] == (
        f"{len(folded.log.states) - 1} share partitions are live where the manifest counts {len(folded.log.states)}"
    )
    answer = folded.ask("verify", code=Exit.DIFFERENT)
    (difference,) = answer["differences"]
    assert (difference["subject"], difference["in_topic"]) == (
        format_key(key.key),
        f"at {key.covered_offset}: deleted",
    )
    assert difference["from_log"].startswith(f"at {key.covered_offset}: snapshot_epoch ")


def test_a_manifest_of_another_log_is_found_by_the_record_at_its_offset(
    kafka: str, folded: Folded, new_topic: NewTopicFactory
) -> None:
    """The same manifest beside a log that lost an end and got another one."""
    other = new_topic(1)
    newest = decode_key(folded.manifests()[-1]).covered_offset
    lost = [*folded.log.records[:newest], *write_log(5, ["write"] * 9).records]
    write_records(kafka, other, lost)
    beside = folded._replace(state_topic=other)
    written = fold_batches(topic_id_of(kafka, other), folded.log.records)
    beside.write(dict(written))
    (row,) = beside.ask("list")
    assert (row["manifest"], row["why_not"]) == (newest, "the record at its offset is another one")
    assert beside.ask("verify", code=Exit.DIFFERENT)["differences"][-1]["subject"] == "manifest"


def test_a_log_that_was_cut_leaves_nothing_to_verify_until_the_job_goes_on(
    kafka: str, make_folded: Callable[[list[str]], Folded]
) -> None:
    folded = make_folded([*MOVES, "cut"])
    start = folded.log.log_start
    admin = AdminClient({"bootstrap.servers": kafka})
    target = TopicPartition(folded.state_topic, 0, start)
    admin.delete_records([target])[target].result(PATIENCE_S)
    (row,) = folded.ask("list")
    assert row["verified"]
    assert folded.ask("verify")["differences"] == []
    folded.write(dict.fromkeys(folded.manifests()[-1:]))
    (row,) = folded.ask("list")
    assert (row["manifest"], row["verified"], row["why_not"]) == (
        None,
        False,
        "there is no manifest that the log still reaches",
    )
    answer = folded.ask("verify")
    assert answer["partitions"][0]["open_question"] == row["why_not"]


def test_what_is_not_there_is_named(kafka: str, folded: Folded) -> None:
    assert "has no entry of" in folded.run("show", f"nobody:{format_topic_id(bytes(16))}:0").stderr
    absent = folded.run("list", "1")
    assert (absent.exit_code, absent.stderr) == (
        Exit.NOT_FOUND,
        "Error: The state topic has no partition 1; it has 0 to 0.\n",
    )
    no_topic = folded._replace(snapshot_topic="never-made").run("verify")
    assert (no_topic.exit_code, "never-made" in no_topic.stderr) == (Exit.NOT_FOUND, True)
    assert folded.run("show", "no-key").exit_code == Exit.WRONG_USAGE
