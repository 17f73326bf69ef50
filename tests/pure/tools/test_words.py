"""The marks of the old dialect: each is found, plain English is not, and the list of files that may have them gets only shorter."""

from pathlib import Path

import pytest

from tools.words import (
    ROOT,
    Mark,
    allowed_phrases,
    beyond,
    files,
    left,
    main,
    marks,
    marks_of_markdown,
    marks_of_python,
    marks_of_text,
    room,
    sentences,
)

#: Length of `tools/words_left.txt`; lower it with the list, never raise it.
LEFT_MAX = 664
#: The list may be shorter by so many files before the bound must follow.
SLACK = 25


def found_in(text: str) -> list[str]:
    return [mark for mark, _ in marks_of_text(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What is read is kept.", ["opening"]),
        ("It is kept. Whoever reads it closes it.", ["opening", "whoever"]),
        ("Of the newest record.", ["opening"]),
        ("**Where** it ends.", ["opening"]),
        ("The answer leaves behind the write.", ["behind"]),
        ("A node that is to stop and two that are not to stop.", ["is to", "is to"]),
        ("Take in that it ended.", ["take in"]),
        ("Take in an answer.", ["take in"]),
        ("It takes note of this.", ["take note"]),
        ("It waits for so many records.", ["so many"]),
        ("It learns by the way of a broker.", ["by the way of"]),
        ("It begins anew.", ["anew"]),
        ("It fails\nwhatever comes.", ["whatever"]),
        ("Nobody asks.", ["nobody"]),
    ],
)
def test_marks_are_found(text: str, expected: list[str]) -> None:
    assert found_in(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "What is read?",
        'It asks "Who leads it?" of each broker.',
        "It says what is read, who leads it and where it ends.",
        "Offsets are whole numbers. Whole batches are kept.",
        "Its distance is to the left, and the bound is to 5.",
        "There are so many records that it fails.",
        "The time it takes in ms.",
        "It calls `behind` and ``what is to come``.",
        "See e.g. the page of Kafka.",
    ],
)
def test_plain_english_has_no_mark(text: str) -> None:
    assert found_in(text) == []


def test_sentences_end_at_stops_before_capitals() -> None:
    assert sentences("One of 0.5 s, e.g. this. Two?\n(Three.) `four` is it.") == [
        "One of 0.5 s, e.g. this.",
        "Two?",
        "(Three.)",
        "`x` is it.",
    ]


MODULE = '''"""Of a module."""

# What a comment of two lines
# says behind its end.
X = 1  # anew
#: Of X.
Y = "whatever it says"
Z = f"behind {X}"


class Room:
    """Room of one."""

    def __init__(self) -> None:
        """Begin empty."""

    def read(self) -> None:
        """The records."""

    def write(self) -> None:
        """Write them."""  # noqa: D400 - anew

    def feed(self) -> None:
        """Needed by all."""


def test_what_it_says() -> None:
    """The claim of a test needs no verb."""
'''


def test_module_marks_have_their_lines() -> None:
    found = [(line, mark) for line, mark, _ in sorted(marks_of_python(MODULE, has_messages=True))]
    assert found == [
        (1, "opening"),
        (3, "behind"),
        (3, "opening"),
        (5, "anew"),
        (6, "opening"),
        (7, "whatever"),
        (8, "behind"),
        (14, "new object"),
        (17, "no verb"),
        (23, "no verb"),
        (27, "test name"),
    ]


def test_strings_count_only_where_people_read_them() -> None:
    found = [line for line, _, _ in marks_of_python(MODULE, has_messages=False)]
    assert not {7, 8} & set(found)


def test_long_test_name_is_a_mark() -> None:
    names = ["test_" + "x" * 65, "test_" + "x" * 66]
    found = [text for name in names for _, _, text in marks_of_python(f"def {name}(): pass\n", has_messages=False)]
    assert found == names[1:]


def test_page_marks_skip_fences_and_split_cells() -> None:
    page = "# What it is\n\n- Of one.\n\n```text\nbehind\n```\n\n| Who reads | What it reads? |\n"
    assert [(line, mark) for line, mark, _ in marks_of_markdown(page)] == [
        (1, "opening"),
        (3, "opening"),
        (9, "opening"),
    ]


def test_rooms_are_two_folders() -> None:
    assert [room(path) for path in ("README.md", "docs/a.md", "holdfast/runtime/kafka_log/log.py")] == [
        ".",
        "docs",
        "holdfast/runtime",
    ]


def test_list_names_exactly_the_files_with_marks() -> None:
    """A clean file leaves it with `python -m tools.words --shorten`; a file that is not listed must be clean (`--check`)."""
    assert left() == sorted({mark.path for mark in beyond(marks())})


def test_list_of_files_with_marks_gets_only_shorter() -> None:
    assert LEFT_MAX - SLACK <= len(left()) <= LEFT_MAX


def test_check_fails_for_a_file_not_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("tools.words.marks", lambda left_out: [Mark("a.md", 3, "anew", "It begins anew.")])
    assert main(["--check"]) == 1
    assert capsys.readouterr().out == "a.md:3: anew: It begins anew.\n"


def test_check_lets_pass_what_is_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.words.marks", lambda left_out: [Mark("a.md", 3, "nobody", "Nobody asks.")])
    assert main(["--check"]) == 0


def test_allowed_phrases_have_reasons_and_are_used() -> None:
    texts = [" ".join(path.read_text(encoding="utf-8").split()) for path in files() if path != Path(__file__)]
    for phrase, reason in allowed_phrases().items():
        assert reason, phrase
        assert any(phrase in text for text in texts), f"{phrase} is not used"


def test_files_are_those_of_the_checkout() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in files()}
    assert {"README.md", "docs/architecture.md", "holdfast/cli.py", "tools/words.py"} <= names
