"""docs/log-format.md and examples/read_state.py: their bytes, tables and code say what Holdfast does."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from hypothesis import given
from hypothesis import strategies as st

from holdfast.daemon.topics.state_topic import FIXED_CONFIG
from holdfast.history.schema import COLUMNS
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, Placement, encode_checkpoint
from holdfast.records.log.fencing import START, step
from holdfast.records.log.header import encode_header
from holdfast.records.log.single_object import SingleObject
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.codecs import avro
from holdfast.records.share.codecs.codec import Codec, Kind, decode_record
from holdfast.records.share.codecs.kafka import COUNT_TAG, FENCES_TAG
from holdfast.records.share.keys import SharePartitionKey, format_key, java_string_hash, log_partition
from holdfast.records.share.pending_runs import PendingRuns
from holdfast.records.share.replay import ShareState, replay
from holdfast.records.share.snapshot_store.entries import DELETED, digest, encode_entry, encode_entry_key
from holdfast.records.share.values import Snapshot, Update, Value
from tests.pure.docs.pages import DIRECTORIES, ROOT, code_behind, table
from tests.pure.records.strategies import batch_lists
from tests.world.records import encode_record

PAGE = (ROOT / "docs" / "log-format.md").read_text()
EXAMPLE = ROOT / "examples" / "read_state.py"
TOPIC = bytes(range(16))
KEY = SharePartitionKey("g1", TOPIC, 7)


def load_example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("read_state", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


example = load_example()


# ---- bytes and tables ------------------------------------------------------------------------------------------------


def test_the_worked_example_of_partitioning() -> None:
    texts, hashes, partitions = (cells[1:] for cells in table(PAGE, "partitioning"))
    by_topic_partition = format_key(KEY).removeprefix(f"{KEY.group_id}:")
    assert texts == [f"`{format_key(KEY)}`", f"`{by_topic_partition}`"]
    assert hashes == [f"`{java_string_hash(text.strip('`'))}`" for text in texts]
    assert partitions == [f"`{log_partition(KEY, 50, placement)}`" for placement in Placement]


def test_the_worked_example_of_the_header() -> None:
    ((owner_epoch, sequence, header),) = table(PAGE, "header")
    assert header == f"`{encode_header(int(owner_epoch), int(sequence)).hex()}`"


def test_the_fingerprints_are_those_of_the_schemas() -> None:
    tables = table(PAGE, "fingerprints") + table(PAGE, "snapshot fingerprints")
    rows = {re.findall(r"\w+\.avsc", link)[0]: prefix.strip("`") for link, _, prefix in tables}
    files = {file.name for file in (ROOT / "holdfast" / "records" / "schemas").glob("*.avsc")}
    assert rows == {name: SingleObject(name.removesuffix(".avsc")).prefix.hex() for name in files}


def test_the_worked_example_of_the_digest() -> None:
    key, value, summand = (cells[-1].strip("`") for cells in table(PAGE, "digest"))
    key_bytes = encode_entry_key(bytes(16), avro.encode_key(KEY), 5)
    assert (key, value) == (key_bytes.hex(), encode_entry(DELETED).hex())
    assert summand == f"{digest(bytes.fromhex(key), bytes.fromhex(value)):032x}"


def test_the_worked_bytes_of_kafkas_codec() -> None:
    key, *value = (
        bytes.fromhex("".join(re.findall(r"`([0-9a-f]+)`", cell))) for _, cell in table(PAGE, "kafka snapshot")
    )
    times_ms = 1_735_689_600_000
    snapshot = Snapshot(3, 2, 0, 100, -1, times_ms, times_ms, (StateBatch(100, 109, 0, 2),), 5, 2)
    assert encode_record(Codec.KAFKA, KEY, snapshot) == (key, b"".join(value))


def test_the_tags_of_kafkas_codec() -> None:
    assert [int(tag.split()[0]) for tag, *_ in table(PAGE, "tags")] == [COUNT_TAG, FENCES_TAG]


@pytest.mark.parametrize(
    ("mark", "schemas"),
    [
        ("checkpoint fields", ("share_checkpoint",)),
        ("state fields", ("share_snapshot",)),
        ("entry fields", ("share_entry_key", "share_entry")),
        ("manifest fields", ("share_manifest_key", "share_manifest")),
    ],
)
def test_the_fields_are_those_of_the_schemas(mark: str, schemas: tuple[str, ...]) -> None:
    fields = {field["name"] for name in schemas for field in SingleObject(name).schema["fields"]}
    assert {field for cell, *_ in table(PAGE, mark) for field in re.findall(r"`(\w+)`", cell)} == fields


def test_the_topic_settings_are_those_it_is_made_with() -> None:
    rows = {name.strip("`"): value.strip("`") for name, value, _ in table(PAGE, "topic settings")}
    assert {name: rows.pop(name) for name in FIXED_CONFIG} == FIXED_CONFIG
    assert rows.keys() == {"segment.bytes", "min.insync.replicas"}


def test_the_columns_of_the_history_are_those_of_the_job() -> None:
    rows = [(name, kind) for name, kind, _ in table(PAGE, "history")]
    assert rows == [(f"`{name}`", kind) for name, kind in COLUMNS.items()]
    assert all(f"/{name}=" in PAGE for name in DIRECTORIES)


# ---- code ------------------------------------------------------------------------------------------------------------


def test_the_code_of_the_page_is_that_of_the_example() -> None:
    assert code_behind(PAGE, "who counts") in EXAMPLE.read_text()


def test_the_example_uses_nothing_of_holdfast() -> None:
    imported = re.findall(r"^(?:from|import) (\w+)", EXAMPLE.read_text(), re.MULTILINE)
    assert set(imported) <= {"confluent_kafka", "fastavro", *sys.stdlib_module_names}


class Entry(NamedTuple):
    """A record of the log; `attempt` 0: not a checkpoint, `owner_epoch` None: without a header."""

    owner_epoch: int | None
    sequence: int
    attempt: int = 0
    key: SharePartitionKey = KEY
    value: Value = None

    def checkpoint(self) -> Checkpoint | None:
        if not self.attempt or self.owner_epoch is None:
            return None
        return Checkpoint(self.owner_epoch, bytes([self.attempt]) * 16, "1", 1, "cluster", bytes(16), 3, None)

    def raw(self) -> tuple[bytes, bytes | None, bytes | None]:
        header = None if self.owner_epoch is None else encode_header(self.owner_epoch, self.sequence)
        checkpoint = self.checkpoint()
        if checkpoint is not None:
            return CHECKPOINT_KEY, encode_checkpoint(checkpoint), header
        return *encode_record(Codec.AVRO, self.key, self.value), header


epochs = st.integers(-1, 6)
snapshots = st.builds(
    Snapshot,
    *(st.integers(0, 9), epochs, epochs, st.integers(-1, 20), st.integers(-1, 9), st.just(5), st.just(5)),
    st.just(()) | st.tuples(st.builds(StateBatch, st.just(20), st.integers(20, 30), st.just(0), st.integers(0, 3))),
    *(epochs, epochs),
)
updates = st.builds(Update, st.integers(0, 9), epochs, st.integers(-1, 40), st.integers(-1, 9), batch_lists.map(tuple))
entries = st.builds(
    Entry,
    st.none() | st.integers(0, 3),
    st.integers(-1, 5),
    st.sampled_from((0, 0, 0, 1, 2)),
    st.sampled_from((KEY, KEY._replace(partition=0))),
    st.none() | snapshots | updates | updates,
)


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    """Give logs in which much counts: most records carry the next sequence of the current epoch."""
    log: list[Entry] = []
    position = START
    for entry, is_next in draw(st.lists(st.tuples(entries, st.sampled_from((True, True, True, False))), max_size=25)):
        if is_next and position.owner_epoch and not entry.attempt:
            entry = entry._replace(owner_epoch=position.owner_epoch, sequence=position.next_sequence)
        log.append(entry)
        if entry.owner_epoch is not None:
            position, _ = step(position, entry.owner_epoch, entry.sequence, entry.checkpoint())
    return log


def by_offset(batches: Any) -> dict[int, tuple[int, int]]:
    return {offset: (state, count) for first, last, state, count in batches for offset in range(first, last + 1)}


def comparable(fields: dict[str, Any]) -> tuple[Any, ...]:
    batches = [tuple(batch[name] for name in StateBatch._fields) for batch in fields["state_batches"]]
    return *(fields[name] for name in Snapshot._fields if name != "state_batches"), by_offset(batches)


@given(logs())
def test_the_example_counts_and_folds_as_holdfast_does(log: list[Entry]) -> None:
    reader = example.StateReader()
    position, states, void_records = START, dict[SharePartitionKey, ShareState](), 0
    for offset, entry in enumerate(log):
        key, value, header = entry.raw()
        reader.take(0, offset, key, value, header)
        counts = False
        if entry.owner_epoch is not None:
            position, counts = step(position, entry.owner_epoch, entry.sequence, entry.checkpoint())
        void_records += not counts
        if counts and not entry.checkpoint():
            decoded = decode_record(key, value)
            state = replay(states.pop(entry.key, None), decoded.value, 500)  # type: ignore[arg-type]
            if state is not None:
                states[entry.key] = state
    assert reader.void_records == void_records
    expected = {
        tuple(key): (
            *(getattr(state, name) for name in Snapshot._fields if name != "state_batches"),
            by_offset(state.state_batches),
        )
        for key, state in states.items()
    }
    assert {place: comparable(fields) for place, fields in reader.states.items()} == expected


class CountedReads(dict[str, int]):
    """A state batch that counts how often any of them is looked at."""

    reads = 0

    def __getitem__(self, name: str) -> int:
        CountedReads.reads += 1
        return super().__getitem__(name)


def counted(first_offset: int, last_offset: int, delivery_count: int) -> CountedReads:
    return CountedReads(StateBatch(first_offset, last_offset, 0, delivery_count)._asdict())


def test_two_kinds_of_readers_find_the_fences_that_the_page_says_where_snapshots_are_not_ours() -> None:
    """The newest snapshot's own, and the highest of all."""
    higher = Snapshot(0, 7, 9, 0, 0, 1, 1, (), 9, 7)
    lower = Snapshot(1, 2, 3, 0, 0, 1, 1, (), 3, 2)
    pending, states = PendingRuns(1 << 31), list[dict[str, Any]]()
    for offset, value in enumerate((higher, lower)):
        run = pending.file(Kind.SNAPSHOT, *encode_record(Codec.AVRO, KEY, value), offset)
        states.append(example.fold(states[-1] if states else None, "ShareSnapshot", value._asdict()))
    lazy = pending.fold(run, None)
    assert lazy is not None
    assert (lazy.leader_epoch_fence, lazy.state_epoch_fence) == (3, 2)
    assert [states[-1][fence] for _, fence in example.FENCES] == [9, 7]
    assert "take the snapshot's fences as they stand" in PAGE


@pytest.mark.parametrize("is_wide", [False, True], ids=["one batch", "all batches"])
def test_the_example_looks_at_each_batch_a_few_times_whatever_an_update_covers(is_wide: bool) -> None:
    count = 500
    before = [counted(2 * number, 2 * number, 1) for number in range(count)]
    new = [counted(2 * number, 2 * number + 1, 2) for number in range(count if is_wide else 1)]
    CountedReads.reads = 0
    combined = example.combine(before, new, 0)
    assert len(combined) == (1 if is_wide else count)
    assert CountedReads.reads < 20 * (len(before) + len(new))


class Unread:
    """A consumer of a topic that lists it or not, and then gives an error: a node coordinates no groups of consumers."""

    def __init__(self, why_not_listed: KafkaError | None) -> None:
        self._why_not_listed = why_not_listed

    def list_topics(self, topic: str, timeout: float) -> object:
        if self._why_not_listed is not None:
            raise KafkaException(self._why_not_listed)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def assign(self, places: object) -> None:
        pass

    def consume(self, count: int, timeout: float) -> list[Message]:
        return [Message(error=KafkaError(KafkaError.INVALID_REQUEST, "share state only"))]


@pytest.mark.parametrize(
    ("why_not_listed", "why"),
    [(None, "share state only"), (KafkaError(KafkaError._TRANSPORT, "no broker answers"), "no broker answers")],
)
def test_the_example_says_in_one_line_why_a_topic_cannot_be_read(why_not_listed: KafkaError | None, why: str) -> None:
    with pytest.raises(LookupError, match=rf"^The topic t cannot be read: {why}\.$"):
        list(example.read_log(Unread(why_not_listed), "t"))


def run_example(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, str(EXAMPLE.with_name(program)), "--bootstrap-server", "127.0.0.1:1", *arguments)
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"
    }  # one imports the other
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("program", ["read_state.py", "read_snapshots.py"])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x", "'x' is not NAME=VALUE"),
        ("nope=x", 'No such configuration property: "nope"'),
        ("error_cb=x", "expected error_cb property as a callable function"),
    ],
)
def test_an_example_says_in_one_line_that_a_property_is_wrong(program: str, text: str, why: str) -> None:
    ended = run_example(program, "--property", text)
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", f"--property is wrong: {why}.\n")


def test_the_example_says_in_one_line_why_no_broker_can_be_reached(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(example, "SILENCE_S_MAX", 0.2)
    monkeypatch.setattr(sys, "argv", ["read_state.py", "--bootstrap-server", "127.0.0.1:1", "--topic", "t"])
    assert example.main() == 1
    printed, said = capfd.readouterr()
    assert (printed, said.count("\n")) == ("", 1), said
    assert said.startswith("The topic t cannot be read: ")
    assert "Connection refused" in said


def test_the_example_says_what_it_cannot_read() -> None:
    for header, key, text in (
        (b"\x02" + bytes(12), b"", "a newer Holdfast wrote it"),
        (encode_header(1, 1), b"\x00\x00", "Kafka's own codec"),
    ):
        reader = example.StateReader()
        reader.take(0, 0, *Entry(1, 0, 1).raw())
        with pytest.raises(ValueError, match=text):
            reader.take(0, 1, key, b"", header)
