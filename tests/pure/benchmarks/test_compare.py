"""What `benchmarks.node.compare` is told, and what it shows."""

import argparse
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.generator import Measurement, Workload
from benchmarks.node.compare import ComparedNode, NodeOptions, main, parse_node, parse_workload, table

RUN = Measurement(
    requests=1,
    errors=0,
    seconds=1.0,
    requests_per_s=1_000.0,
    keys_per_s=1_000.0,
    p50_ms=2.0,
    p99_ms=4.0,
    max_ms=4.0,
    generator_cpu=0.1,
)


def test_a_node_is_a_name_and_what_sets_it_apart(tmp_path: Path) -> None:
    assert parse_node("now") == NodeOptions(name="now")
    ready = tmp_path / "build/compiled/ready"
    ready.parent.mkdir(parents=True)
    ready.touch()
    parsed = parse_node(f"off,busy_poll_us=0,build={tmp_path},slice_ms=2")
    assert parsed == NodeOptions(name="off", settings={"busy_poll_us": "0", "slice_ms": "2"}, build=tmp_path.resolve())
    node = ComparedNode(parsed)
    assert (node.name, node.state_topic) == ("off", "__holdfast_share_state_off")
    assert node.settings == {
        "state_topic": "__holdfast_share_state_off",
        "snapshots.topic": "",
        "busy_poll_us": "0",
        "slice_ms": "2",
    }
    assert node.environment["PYTHONPATH"].split(":") == [
        f"{tmp_path.resolve()}/build/compiled",
        f"{tmp_path.resolve()}",
    ]
    assert ComparedNode(NodeOptions(name="now")).environment == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "small letters"),
        ("Now", "small letters"),
        ("kafka", "is not kafka"),
        ("now,busy_poll_us", "SETTING=VALUE"),
        ("now,=0", "SETTING=VALUE"),
        ("now,build=/nowhere", "make compiled"),
        ("now,slice_ms=1,slice_ms=2", "slice_ms is given twice"),
        ("now,state_topic=other", "not to be chosen here"),
        ("now,workers=2", "not to be chosen here"),
    ],
)
def test_what_is_no_node_is_refused(text: str, why: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=why):
        parse_node(text)


def test_a_workload_is_what_the_tables_say() -> None:
    assert parse_workload("write,16,64,spread") == Workload(api="write", keys=16, connections=64, mix="spread")
    assert parse_workload("read,1,1,steady") == Workload(api="read", keys=1, connections=1, mix="steady")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("write,1,64", "as in"),
        ("write,1,64,even", "as in"),
        ("delete,1,64,spread", "as in"),
        ("write,one,64,spread", "as in"),
        ("write,3,64,spread", "KEYS divides 16"),
        ("write,0,64,spread", "KEYS divides 16"),
        ("write,1,65,spread", "CONNECTIONS is 1 to 64"),
    ],
)
def test_what_is_no_workload_is_refused(text: str, why: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=why):
        parse_workload(text)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--node", "a", "--node", "a"], "a name of its own"),
        (["--repeats", "0"], "--repeats"),
        (["--seconds", "0"], "--seconds"),
        (["--seconds", "inf"], "--seconds"),
        (["--warm-up", "nan"], "--warm-up"),
        (["--brokers", "2"], "--brokers"),
    ],
)
def test_nothing_is_started_for_a_wrong_option(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_a_row_has_medians_and_what_they_are_of_the_first_contenders() -> None:
    workload = Workload(api="write", keys=1, connections=1, mix="spread")
    quick, quickest = (
        replace(RUN, requests_per_s=1_500.0, p50_ms=1.0),
        replace(RUN, requests_per_s=9_000.0, p50_ms=0.1, errors=2),
    )
    assert table(workload, {"kafka": [RUN, RUN, RUN], "now": [quick, RUN, quickest]}) == [
        "| write · 1 key · 1 conn · spread | requests/s | p50 ms | p99 ms | errors |",
        "| --- | --: | --: | --: | --: |",
        "| kafka | 1,000 (1.00) | 2.000 (1.00) | 4.00 (1.00) | 0 |",
        "| now | 1,500 (1.50) | 1.000 (0.50) | 4.00 (1.00) | 2 |",
    ], "three runs are too few for an interval"
    assert table(workload, {"kafka": [RUN] * 6, "now": [quick, RUN, quickest] * 2})[2:] == [
        "| kafka | 1,000 (1.00) | 2.000 (1.00) | 4.00 (1.00) | 0 |",
        "| now | 1,500 (1.50, 1.00 to 9.00) | 1.000 (0.50, 0.05 to 1.00) | 4.00 (1.00) | 4 |",
    ]
