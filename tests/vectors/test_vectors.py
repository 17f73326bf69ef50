"""Our answers are the recorded ones, and the runner notices when they are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.vectors.__main__ import main
from tests.vectors.runner import CASES, DATA, find_case, find_files, read_text, run_file

LINES = {
    "codec.jsonl": 100,
    "codec_malformed.jsonl": 10,
    "combiner.jsonl": 2000,
    "consumer_calls.jsonl.xz": 1000,
    "combiner_tabled.jsonl": 26,
    "offsets.jsonl": 50,
    "partition.jsonl": 100,
    "shard.jsonl": 30,
    "shard_ext.jsonl": 10,
    "share_key.jsonl": 20,
    "share_partition.jsonl.xz": 200,
    "share_partition_others.jsonl.xz": 120,
    "4.4.0/combiner.jsonl": 2000,
    "4.4.0/combiner_odd.jsonl": 100,
    "4.4.0/shard.jsonl": 100,
    "4.4.0/shard_ext.jsonl": 20,
}
STEPS = {
    "shard.jsonl": 900,
    "shard_ext.jsonl": 400,
    # There are 5,738, but 13 of its scenarios end before a fault of Kafka's.
    "share_partition.jsonl.xz": 5588,
    "share_partition_others.jsonl.xz": 3088,
    "4.4.0/shard.jsonl": 3000,
    "4.4.0/shard_ext.jsonl": 800,
}


@pytest.mark.parametrize("name", sorted(LINES))
def test_every_line_of_a_file_passes(name: str) -> None:
    report = run_file(DATA / name)
    assert report.failures == []
    assert (report.passed, report.steps) == (LINES[name], STEPS.get(name, 0))


def test_no_file_is_left_out() -> None:
    assert sorted(str(path.relative_to(DATA)) for path in find_files(DATA)) == sorted(LINES)


@pytest.mark.parametrize(
    ("stem", "known"),
    [("shard", "shard"), ("shard-2", "shard"), ("shard_ext_b", "shard_ext"), ("combiner_odd2", "combiner_odd")],
)
def test_a_file_is_known_by_the_longest_name_it_begins_with(stem: str, known: str) -> None:
    assert find_case(stem) is CASES[known]


def first_case(name: str) -> dict[str, Any]:
    paths = {path.relative_to(DATA).as_posix().partition(".jsonl")[0]: path for path in find_files(DATA)}
    case = json.loads(read_text(paths[name if name in paths else f"4.4.0/{name}"]).partition("\n")[0])
    assert isinstance(case, dict)
    return case


def outcome(directory: Path, name: str, case: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    (directory / f"{Path(name).name}.jsonl").write_text(json.dumps(case) + "\n", encoding="utf-8")
    return main([str(directory)]), capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(CASES))
def test_one_unknown_field_fails_the_run(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = outcome(tmp_path, name, first_case(name) | {"surprise": 1}, capsys)
    assert code == 1
    assert "surprise" in out
    assert out.endswith("0 passed, 1 failed\n")


def test_one_unknown_field_deep_inside_fails_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = first_case("shard")
    case["steps"][0]["records"][0]["value"]["surprise"] = 1
    code, out = outcome(tmp_path, "shard", case, capsys)
    assert code == 1
    assert "step 0 (initialize): unknown fields of record.value: surprise" in out


def test_one_unknown_operation_fails_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = first_case("shard")
    case["steps"][0]["op"] = "alter"
    code, out = outcome(tmp_path, "shard", case, capsys)
    assert code == 1
    assert "unknown operation alter" in out


def test_one_unknown_file_fails_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = outcome(tmp_path, "weather", {}, capsys)
    assert code == 1
    assert "unknown kind of file" in out


@pytest.mark.parametrize(
    ("name", "path", "wrong"),
    [
        ("partition", ["hash"], 0),
        ("share_key", ["valid"], True),
        ("codec", ["value", "stateEpoch"], 94),
        ("codec_malformed", ["exception"], "Deserializer$UnknownRecordTypeException"),
        ("combiner", ["out", 0, 3], 5),
        ("combiner_tabled", ["out", 0, 0], 119),
        ("consumer_calls", ["fields", "maxRecords"], -7),
        ("offsets", ["lastRedundantOffset", 3], 3),
        ("shard", ["steps", 3, "response", "stateEpoch"], 7),
        ("shard", ["steps", 3, "records", 0, "value", "leaderEpoch"], 8),
        ("shard", ["steps", 3, "lastRedundantOffset"], 1),
        ("share_partition", ["steps", 4, "expect", "acquired", 0, 2], 7),
        ("share_partition", ["steps", 4, "expect", "state", "batches", 0, 4], "m9"),
        ("share_partition", ["steps", 6, "expect", "writes", 0, "batches", 0, 3], 9),
        ("4.4.0/combiner", ["out", 0, 3], 5),
        ("4.4.0/shard", ["steps", 4, "records", 0, "value", "startOffset"], -1),
        ("4.4.0/shard", ["steps", 4, "records", 0, "value", "deliveryCompleteCount"], -1),
    ],
)
def test_one_wrong_answer_fails_the_run(
    name: str, path: list[str | int], wrong: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = first_case(name)
    place: Any = case
    for step in path[:-1]:
        place = place[step]
    assert place[path[-1]] != wrong
    place[path[-1]] = wrong
    code, out = outcome(tmp_path, name, case, capsys)
    assert code == 1
    assert out.endswith("0 passed, 1 failed\n")


def test_a_directory_without_vectors_fails_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == "0 passed, 0 failed\n"
