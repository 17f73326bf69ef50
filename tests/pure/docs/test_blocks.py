"""Every code block of the pages is tried by a test, or says why not; `tests/installed` types those that can be typed.

What is not typed is looked up here: commands, options, files, modules and settings that it names exist.
"""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.node_settings import load_settings
from tests.pure.docs.blocks import TYPED_PAGES, Block, Step, blocks_in, blocks_of, is_like, reaches_outside, steps_of
from tests.pure.docs.pages import ROOT, code_spans
from tests.pure.docs.test_pages import check_command

#: What `tests/installed` types, and what a test here or one named by a mark reads.
TYPED = {"console", "python"}
READ = {"cron", "java", "json", "sql", "text", "toml"}
#: Languages of programs, which have no commands to be looked up.
PROGRAMS = {"java", "python"}
REASON_LENGTH_MIN = 10

BLOCKS = [block for page in TYPED_PAGES for block in blocks_of(page)]
every_block = pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)


def check(block: Block) -> None:
    """Check that a block is tried, or says why not, and that what is not typed names what exists.

    Raises:
        AssertionError: it does not.
    """
    assert block.language in TYPED | READ, f"{block.name} has the language {block.language!r}, which nobody tries"
    if (mark := block.remarks.get("tested")) is not None:
        assert mark in marks_that_are_read(), f"no test reads {mark!r}, which stands before {block.name}"
    elif block.not_run is not None:
        check_reason(block, block.not_run)
        for command in commands_of(block):
            check_words(shlex.split(command, comments=True), block.name)
    elif block.language == "console":
        steps = steps_of(block.code)
        assert steps, f"{block.name} types nothing"
        for step in steps:
            assert not reaches_outside(step.command), f"{block.name} changes the machine: {step.command}"
    else:
        assert block.language not in ("cron", "java", "sql"), f"{block.name}: no test tries it, and it does not say why"


def check_reason(block: Block, reason: str) -> None:
    assert len(reason) >= REASON_LENGTH_MIN, f"{block.name} is not run, and does not say why"
    for span in code_spans(reason):
        if span.startswith("test_"):
            file, _, name = span.partition("::")
            texts = [path.read_text() for path in ROOT.joinpath("tests").rglob(file)]
            assert any(f"def {name}" in text for text in texts), (
                f"{block.name} is not run because of {span}, which does not exist"
            )


def commands_of(block: Block) -> list[str]:
    if block.language == "cron":
        return [line.split(maxsplit=6)[6] for line in block.code.splitlines()]
    if block.language in PROGRAMS:
        return []
    return [step.command.replace("\\\n", " ") for step in steps_of(block.code)]


#: Behind these words stands a unit, or a user or a group.
_BEFORE_A_NAME = ("--unit", "--now", "restart", "-g", "-u")


def check_words(words: list[str], name: str) -> None:
    """Look up what a command names: a command and options of ours, verbs of make, modules and files of the project."""
    for at, word in enumerate(words):
        tool = Path(word).name
        if word in ("&&", "|"):
            check_words(words[:at], name)
            check_words(words[at + 1 :], name)
            return
        is_named = at > 0 and words[at - 1] in _BEFORE_A_NAME
        if tool == "holdfast" and "/etc/" not in word and not is_named:
            check_command(main, words[at + 1 :], name)
            check_settings(words, name)
            return
        if word.startswith(("benchmarks/", "deploy/", "examples/")):
            assert (ROOT / word).exists(), f"{name} names {word}, which does not exist"
    if words[:1] == ["make"]:
        verbs = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert [word for word in words[1:] if "=" not in word and word not in verbs] == []
    if "-m" in words and words[words.index("-m") + 1].startswith("benchmarks"):
        module = words[words.index("-m") + 1]
        spec = find_spec(module)
        if spec is not None and spec.submodule_search_locations:
            spec = find_spec(f"{module}.__main__")
        assert spec is not None, f"{name} names {module}, which does not exist"
        assert spec.origin is not None
        program = Path(spec.origin).read_text()
        assert [word for word in words if word.startswith("--") and f'"{word}"' not in program] == []


def check_settings(words: list[str], name: str) -> None:
    """Give the settings on a command line to the reader of settings."""
    flags = dict(value.split("=", 1) for option, value in pairwise(words) if option in ("--set", "-s"))
    flags.setdefault("kafka.bootstrap.servers", "kafka:9092")
    assert load_settings(flags=flags).warnings == (), name


@cache
def marks_that_are_read() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        found |= set(re.findall(r'code_behind\(.*"([^"]+)"\)', path.read_text()))
    return found


@every_block
def test_a_block_is_tried_or_says_why_not(block: Block) -> None:
    check(block)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "toml"], ids=lambda block: block.name)
def test_settings_in_files_load(block: Block, tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(block.code.replace('"ssl.ca.location" = "/etc/ssl/certs/kafka-ca.pem"', ""))
    assert load_settings(tmp_path / "node.toml").warnings == ()


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "json"], ids=lambda block: block.name)
def test_json_is_json(block: Block) -> None:
    assert [json.loads(line) for line in block.code.splitlines()], "there is nothing in it"


# ---- the rule itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```\n$ holdfast status\n```", "which nobody tries"),
        ("```bash\nholdfast status\n```", "which nobody tries"),
        ("```sql\nSELECT 1\n```", "does not say why"),
        ("```console\n$ pip install holdfast\n```", "changes the machine"),
        ("```console\n$ echo > /etc/motd\n```", "changes the machine"),
        ("<!-- not run: why -->\n```console\n$ make demo\n```", "does not say why"),
        ("<!-- not run: needs a cluster -->\n```console\n$ holdfast sevre\n```", "does not exist"),
        ("<!-- not run: needs a cluster -->\n```console\n$ holdfast serve --sat a=1\n```", "No such option"),
        ("<!-- not run: needs a cluster -->\n```console\n$ holdfast serve a\n```", "takes no a"),
        ("<!-- not run: needs a cluster -->\n```console\n$ python deploy/none.py\n```", "does not exist"),
        ("<!-- not run: needs a cluster -->\n```console\n$ python -m benchmarks --fast\n```", "--fast"),
        ("<!-- not run: `test_blocks.py::test_none` does it -->\n```console\n$ make demo\n```", "does not exist"),
        ("<!-- tested: nowhere -->\n```python\n1\n```", "no test reads"),
        ("<!-- not run: needs a cluster -->\n\n```console\n$ make demo\n```", "changes the machine"),
    ],
)
def test_a_block_that_nobody_tries_is_found(text: str, problem: str) -> None:
    (block,) = blocks_in(text, "a page")
    with pytest.raises(AssertionError, match=re.escape(problem)):
        check(block)


def test_a_console_block_is_taken_apart() -> None:
    code = "$ one  # first\n       # of all\nsaid\n\nmore\n$ two \\\n    --three\n$ four"
    assert steps_of(code) == [Step("one  # first", "said\n\nmore\n"), Step("two \\\n    --three", ""), Step("four", "")]


@pytest.mark.parametrize(
    ("shown", "said", "is_so"),
    [
        ("Done.", "Done.\n", True),
        ("Done.", "Done. And more.", False),
        ("Done.…", "Done. And more.", True),
        ("a … d", "a\nb\nc\nd", True),
        ("…\nb\n… in all", "b\nc\n2 in all", True),
        ("offset 10", "offset 11", False),
        ("took 10 ms", "took 1,312 ms", True),
        ("lag 0.5", "lag 12.25", True),
        ("at 127.0.0.1:41234", "at 127.0.0.1:5123", True),
        ("at 12:30:01 on 2026-01-31", "at 01:02:03.5 on 2027-02-01", True),
        ("topic AE3DN992Se-wWTecwDqrCQ", "topic Bhh8m2tnQ-mpQuzsgtZLgQ", True),
        ("topic AE3DN992Se-wWTecwDqrCQ", "topic orders", False),
        ("a   b", "a b", True),
        ("{'state': 'active'}", "{'state': 'failed'}", False),
    ],
)
def test_what_a_page_shows_is_compared_with_what_is_said(shown: str, said: str, is_so: bool) -> None:
    assert is_like(shown, said) is is_so
