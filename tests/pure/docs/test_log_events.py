"""docs/log-events.md is a catalogue of all events that the code logs, and the lister that compares them finds each form."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.pure.docs.pages import ROOT, table
from tools import log_events
from tools.log_events import FORWARDERS, LEVELS, PAGE, TABLES, Site, events, is_well_formed, rows, sites, unknown

SITES = sites()
EVENTS = events(SITES)


def test_every_event_has_a_row_and_every_row_an_event() -> None:
    assert sorted(rows(PAGE.read_text())) == sorted(EVENTS)


def test_a_row_has_the_levels_of_the_code_a_meaning_and_what_to_do() -> None:
    described = table(PAGE.read_text(), "log events")
    assert [row[0] for row in described] == sorted(row[0] for row in described)
    for event, level, meaning, what_to_do in described:
        levels = EVENTS.get(event.strip("`"), set())
        assert level == " or ".join(each for each in LEVELS if each in levels) or "varies" in levels, event
        assert meaning.endswith("."), event
        assert what_to_do.endswith("."), event


def test_events_are_words_in_snake_case() -> None:
    assert sorted(event for event in EVENTS if not is_well_formed(event)) == []


def test_what_is_an_event_is_in_the_code() -> None:
    assert [site.place for site in unknown(SITES)] == []


def test_what_the_lister_knows_of_the_code_is_there() -> None:
    passing = {f"{site.path.stem}.{site.function}" for site in SITES if not site.event}
    assert FORWARDERS - passing == set()
    modules = {path.stem: path.read_text() for path in (ROOT / "holdfast").rglob("*.py")}
    assert [
        name for name in TABLES if f"{name.partition('.')[2]}: Final = {{" not in modules[name.partition(".")[0]]
    ] == []


def found_in(tmp_path: Path, code: str) -> list[tuple[str, str]]:
    (tmp_path / "module.py").write_text(dedent(code))
    return [(site.level, site.event) for site in sites(tmp_path)]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('_log.info("node_started", port=1)', [("info", "node_started")]),
        ('_log.exception("look_failed")', [("error", "look_failed")]),
        ('self._log.warning("a" if x else "b")', [("warning", "a"), ("warning", "b")]),
        ('EVENT = "node_stopped"\n_log.error(EVENT)', [("error", "node_stopped")]),
        ('def f():\n    event, fields = "a_b", {}\n    _log.error(event, **fields)', [("error", "a_b")]),
        ('self._note("debug", "load_accepted", offset=1)', [("debug", "load_accepted")]),
        ('effects.append(Note("error" if x else "info", "a_b", {}))', [("error", "a_b"), ("info", "a_b")]),
        ('Violation("request_malformed", text)', [("warning", "request_malformed")]),
        ('sums.add("info", "nodes_loaded", 3)', [("info", "nodes_loaded")]),
        ('def _say(self, event):\n    _log.error(event)\nself._say("a_b")', [("error", "a_b")]),
        (
            'def _say(self, event):\n    self._write("info", event)\n'
            'def _write(self, level, event):\n    getattr(_log, level)(event)\nself._say("a_b")',
            [("info", "a_b")],
        ),
        ("def _write(self, key):\n    level, event = key\n    getattr(_log, level)(event)", []),
        ("def f(event):\n    _log.info(event)", [("info", "")]),
        ('_log.info(f"node_{state}")', [("info", "")]),
        ("getattr(_log, level)(event)", [("varies", "")]),
        ('task.exception("no_event")', []),
    ],
)
def test_an_event_is_found_in_each_form(code: str, found: list[tuple[str, str]], tmp_path: Path) -> None:
    assert sorted(found_in(tmp_path, code)) == found


def test_an_event_that_is_made_at_run_time_is_found_unless_it_is_handed_on() -> None:
    at = Site(Path("owners.py"), 1, "_decide", "info", "")
    assert unknown([at, at._replace(path=Path("partition_lines.py"), function="note"), at._replace(event="a_b")]) == [
        at
    ]


def test_what_is_missing_is_reported_as_rows_to_fill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "log-events.md"
    page.write_text("| `gone_event` | info | It was. | Nothing. |\n")
    there = Site(ROOT / "holdfast" / "cli.py", 7, "run", "warning", "node_started")
    monkeypatch.setattr(log_events, "PAGE", page)
    monkeypatch.setattr(log_events, "sites", lambda: [there, there._replace(event="A sentence.", level="error")])
    monkeypatch.setattr("sys.argv", ["log_events", "--missing"])
    assert log_events.main() == 1
    assert capsys.readouterr().out.splitlines() == [
        "| `A sentence.` | error |  |  |",
        "| `node_started` | warning |  |  |",
        "no code logs `gone_event`, which the page has",
        "`A sentence.` is not in snake case",
    ]
