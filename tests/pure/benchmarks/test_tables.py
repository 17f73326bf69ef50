"""What the pages say of speed is what the newest results say: one source, benchmarks/results."""

import json
import re
from pathlib import Path
from statistics import median

import pytest

import benchmarks.__main__ as program
from benchmarks.report import mark_table, speed_table
from tests.pure.docs.pages import ROOT

NUMBERS = {4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight"}


def test_the_tables_are_those_of_the_results() -> None:
    for page, text in program.pages().items():
        assert page.read_text() == text, f"{page}: `python -m benchmarks --tables` writes it"


def test_the_tables_alone_are_written_without_a_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("README", "FRONT_PAGE"):
        page = tmp_path / name
        page.write_text(f"before\n{program._BEGIN}\nold\n{program._END}\nbehind\n")
        monkeypatch.setattr(program, name, page)
    assert program.main(["--tables"]) == 0
    for name in ("README", "FRONT_PAGE"):
        text = (tmp_path / name).read_text()
        assert text.startswith("before\n")
        assert text.endswith("behind\n")
        assert "| Write, one key" in text or "| write · 1 · 1 · steady |" in text
        assert "\nold\n" not in text
    assert capsys.readouterr().out == ""


def test_the_table_for_newcomers_has_medians_and_leaves_out_what_was_not_measured() -> None:
    runs = [
        {"api": "load", "keys": 1, "connections": 1, "contender": who, "seconds": seconds}
        for who, seconds in (("kafka", 8.0), ("holdfast", 15.0), ("holdfast", 16.0), ("holdfast", 90.0))
    ]
    assert speed_table({"load": runs}).splitlines()[2:] == [
        "| Load of 2,000,000 updates of 20,000 share partitions | 16.0 s | 8.00 s | 2.00 |"
    ]


def test_what_is_said_of_restores_is_what_was_measured() -> None:
    runs = json.loads((program.RESULTS / "load.json").read_text())["runs"]
    whole, pruned, fast = (
        median(run["seconds"] for run in runs if run["contender"] == who)
        for who in ("holdfast", "holdfast-pruned", "holdfast-fast")
    )
    text = (ROOT / "benchmarks" / "findings" / "node.md").read_text()
    assert f"{pruned:.2f} s after pruning, {fast:.2f} s from snapshots" in text
    assert re.findall(r"its load takes ([\d.]+) s, (\w+) times as long", text) == [
        (f"{whole:.1f}", NUMBERS[round(whole / fast)])
    ]


def test_a_mark_of_loads_which_have_no_mix_names_none() -> None:
    runs = [
        {"api": "load", "keys": 1, "connections": 1, "contender": who, "records_per_s": rate}
        for who, rate in (("kafka", 100.0), ("holdfast", 119.0))
    ]
    [mark] = [line for line in mark_table({"load-1024": runs}).splitlines() if "1,024" in line]
    assert mark.endswith("| ≥ 1.0 | 1.19 | yes |  |")
