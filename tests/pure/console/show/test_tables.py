"""Tables: a line for each row where there is room, a chosen form where not, and nothing cut or broken in a word."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.console.show.tables import Column, cell_text, escaped, facts_lines, table_lines

COLUMNS = (
    Column("offset", is_number=True),
    Column("kind"),
    Column("epoch", is_number=True, dropped_as=2),
    Column("sequence", is_number=True, dropped_as=1),
    Column("share partition", is_detail=True),
    Column("value", is_detail=True),
)
ROWS = [
    (7, "snapshot", 1, 12, "workers:orders:0", "state epoch 3, 0-9:acknowledged:1, 10-19:available:2"),
    (8, "checkpoint", 1, 13, None, None),
]


def lines(width: int | None, rows: object = ROWS) -> list[str]:
    return list(table_lines(COLUMNS, rows, width))  # type: ignore[arg-type]


def test_without_a_terminal_a_row_is_a_line_and_whole() -> None:
    long = (9, "update", 1, 14, "g" * 500, "10-19:available:2, " * 50 + "end")
    assert lines(None, [*ROWS, long])[-1].endswith(f"  {'g' * 500}  {long[-1]}")
    assert len(lines(None, [*ROWS, long])) == 4


def test_a_row_is_a_line_where_the_terminal_has_room() -> None:
    assert lines(120) == [
        "offset  kind        epoch  sequence  share partition   value",
        "     7  snapshot        1        12  workers:orders:0  state epoch 3, 0-9:acknowledged:1, 10-19:available:2",
        "     8  checkpoint      1        13  -                 -",
    ]


def test_details_go_below_where_there_is_less_room_and_are_broken_at_spaces_alone() -> None:
    assert lines(60) == [
        "offset  kind        epoch  sequence",
        "    share partition  value",
        "     7  snapshot        1        12",
        "    workers:orders:0  state epoch 3, 0-9:acknowledged:1,",
        "    10-19:available:2",
        "     8  checkpoint      1        13",
    ]


def test_what_can_be_missed_is_left_out_in_its_order_and_then_rows_become_lists() -> None:
    assert lines(26)[0] == "offset  kind        epoch"
    assert lines(19)[0] == "offset  kind"
    assert lines(12)[:4] == [
        "offset           7",
        "kind             snapshot",
        "epoch            1",
        "sequence         12",
    ]


def test_no_word_is_broken_or_lost_however_narrow_it_is() -> None:
    words = {word for row in ROWS for cell in (*row[:2], *row[4:]) if cell is not None for word in str(cell).split()}
    for width in range(1, 130):
        assert words <= {word for line in lines(width) for word in line.split()}, width


def test_no_line_is_longer_than_the_terminal_where_its_words_are_not() -> None:
    for width in range(50, 130):
        assert max(map(len, lines(width))) <= width


def test_a_row_comes_out_before_the_next_but_those_that_are_measured_is_requested() -> None:
    asked = 0

    def rows() -> Iterator[tuple[object, ...]]:
        nonlocal asked
        while True:
            asked += 1
            yield asked, "update", 1, asked, "g:t:0", "x"

    told = table_lines(COLUMNS, rows(), 120, rows_measured=2)
    assert next(told).split()[0] == "offset"
    assert asked == 2
    assert [next(told).split()[0] for _ in range(4)] == ["1", "2", "3", "4"]
    assert asked == 4
    nothing_yet = table_lines(COLUMNS, rows(), 120, rows_measured=0)
    assert (next(nothing_yet).split()[0], asked) == ("offset", 4)


def test_a_cell_wider_than_those_measured_moves_its_own_row_and_is_not_cut() -> None:
    rows = [(1, "a", 1, 1, "g:t:0", "x"), (2, "b" * 30, 1, 1, "g:t:0", "x")]
    output = list(table_lines(COLUMNS, rows, None, rows_measured=1))
    assert output[2] == f"     2  {'b' * 30}      1         1  g:t:0            x"


def test_wide_characters_take_two_places() -> None:
    columns = (Column("group"), Column("keys", is_number=True))
    assert list(table_lines(columns, [("注文", 1), ("orders", 22)], 40)) == [
        "group   keys",
        "注文       1",
        "orders    22",
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("[red]x[/red]:100:", "[red]x[/red]:100:"),
        ("team:x:", "team:x:"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202eabc\x9b", "\\u202eabc\\x9b"),
        ("naïve 注文", "naïve 注文"),
    ],
)
def test_a_name_is_shown_as_it_is_and_what_would_act_on_a_terminal_by_its_escape(name: str, shown: str) -> None:
    assert (escaped(name), cell_text(name)) == (shown, shown)


def test_values_are_shown_as_people_say_them() -> None:
    values = (None, True, False, 5_015, 503.0, 0.1800468122, 6.00000000008, 1_234_567.891_2)
    assert [cell_text(each) for each in values] == ["-", "yes", "no", "5015", "503", "0.18", "6", "1234567.891"]


def test_facts_are_wrapped_beside_their_names_and_parts_have_lines_of_their_own() -> None:
    facts = {
        "is ready": False,
        "why not ready": "no broker answers, for 20 s; queried broker 1",
        "batches": ["0-9", "10"],
    }
    assert list(facts_lines(facts, 40)) == [
        "is ready       no",
        "why not ready  no broker answers, for 20",
        "               s; queried broker 1",
        "batches        0-9",
        "               10",
    ]
    assert list(facts_lines(facts, None))[1] == "why not ready  no broker answers, for 20 s; queried broker 1"


PRINT_A_TABLE = "from holdfast.console.show.output import print_table; print_table(['group', 'about'], [('a', 'word')])"


@pytest.mark.parametrize(("no_color", "title"), [("", b"\x1b[1mgroup  about\x1b[0m"), ("1", b"group  about")])
def test_titles_stand_out_on_a_terminal_unless_no_color_is_wanted(no_color: str, title: bytes) -> None:
    ours, terminal = os.openpty()
    try:
        environment = os.environ | {"COLUMNS": "40", "TERM": "xterm", "NO_COLOR": no_color}
        subprocess.run([sys.executable, "-c", PRINT_A_TABLE], stdout=terminal, env=environment, check=True)
        output = b""
        while b"word" not in output:
            output += os.read(ours, 10_000)
    finally:
        os.close(terminal)
        os.close(ours)
    assert output.splitlines()[0] == title
