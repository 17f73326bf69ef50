"""Every page: its links lead somewhere, and the commands, settings and tests that it names exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import click
import pytest

from holdfast.cli import main
from holdfast.daemon.settings.catalogue import catalogue_of
from holdfast.daemon.settings.file_env_flags import MEANINGLESS, RESERVED_VARIABLES
from holdfast.history import schema
from holdfast.tenants import TABLES
from tests.pure.docs.metrics import full_registry
from tests.pure.docs.pages import (
    DIRECTORIES,
    GUIDES,
    PAGES,
    ROOT,
    anchors,
    code_blocks,
    code_spans,
    commands,
    links,
    name_of,
    table,
)
from tools.log_events import events, sites

#: Names with an underscore or a dot that are no settings of ours: of topics, of features, of log lines.
KNOWN = catalogue_of(TABLES.settings).known
OTHER_NAMES = {
    "state_bound_approached",  # a log event
    "is_alarm",
    "silent_ms",
    "cleanup.policy",
    "compression.type",
    "group.initial.rebalance.delay.ms",
    "isolation.level",
    "again_in_ms",
    "exit_code",
    "left_out",
    "refused_arguments",
    "stderr_tail",
    "end_offset",
    "not_listed",
    "share_partitions",
    "max.message.bytes",
    "message.timestamp.type",
    "min.insync.replicas",
    "offsets.retention.minutes",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "share.version",
    "unclean.leader.election.enable",
}
#: Events of log lines look like settings, too.
EVENTS = events(sites()).keys()
METRICS = {family.name for family in full_registry().families()}
SETTING_LIKE = re.compile(r"[a-z0-9]+([._][a-z0-9]+)+")

every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)
every_guide = pytest.mark.parametrize("page", GUIDES, ids=name_of)


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page.read_text()):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)} links to {link}, which does not exist"
        assert target.is_relative_to(ROOT), f"{name_of(page)} links to {link}, outside of the project"
        assert not anchor or anchor in anchors(target.read_text()), f"{name_of(page)}: {link} names no heading"


@every_page
def test_commands_exist(page: Path) -> None:
    for words in commands(page.read_text(), "holdfast"):
        check_command(main, words, name_of(page))


def test_a_command_that_does_not_exist_is_found() -> None:
    for text in ("`holdfast partition`", "`holdfast partitions burn 3`", "```console\n$ holdfast serve --fast 1\n```"):
        (words,) = commands(text, "holdfast")
        with pytest.raises(AssertionError, match="names"):
            check_command(main, words, "a page")


def test_the_commands_that_show_something_have_the_options_that_the_page_names() -> None:
    page, lacking = (ROOT / "docs" / "watch.md").read_text(), []
    for cell, _ in table(page, "looks"):
        [words] = commands(cell, "holdfast")
        command: click.Command = main
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            command = command.commands[words.pop(0)]
        names = {name for option in command.params for name in option.opts}
        lacking += [(command.name, name) for name in ("--json", "--address") if name not in names]
    assert lacking == [("dump", "--address")]
    assert "Each takes `--json`, and all but `dump`, which reads Kafka, take `--address`" in page


def check_command(command: click.Command, words: list[str], page: str) -> None:
    """Walk a command line down the groups of the tool, then look at its options."""
    path = ["holdfast"]
    words = list(words)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        path.append(words.pop(0))
        assert path[-1] in command.commands, f"{page} names `{' '.join(path)}`, which does not exist"
        command = command.commands[path[-1]]
    # click keeps the help option that it made first, so it is made as the tool makes it.
    names = main.context_settings["help_option_names"]
    parser = command.make_parser(click.Context(command, help_option_names=names))
    is_option_alone = bool(words) and words[-1].startswith("--") and "=" not in words[-1]
    try:
        _, left, _ = parser.parse_args([*words, "…"] if is_option_alone else words)
    except click.UsageError as error:
        raise AssertionError(f"{page} names `{' '.join([*path, *words])}`: {error}") from None
    left = [word for word in left if word != "…"]
    assert not left, f"{page} names `{' '.join([*path, *words])}`, which takes no {' '.join(left)}"


@every_page
def test_verbs_of_make_exist(page: Path) -> None:
    verbs = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for words in commands(page.read_text(), "make"):
        for verb in words:
            assert "=" in verb or verb in verbs, f"{name_of(page)} names `make {verb}`, which does not exist"


@every_guide
def test_settings_exist(page: Path) -> None:
    text = page.read_text()
    columns = {
        name
        for schema in (ROOT / "holdfast").rglob("*.avsc")
        for name in re.findall(r'"([a-z_]+)"', schema.read_text())
    }
    known = KNOWN.keys() | MEANINGLESS.keys() | OTHER_NAMES | columns | schema.COLUMNS.keys() | set(DIRECTORIES)
    known |= EVENTS | METRICS | {name for command in TABLES.needs.commands.values() for name in command.arguments}
    for span in code_spans(text):
        name = span.partition(" = ")[0].partition("=")[0]
        if (
            SETTING_LIKE.fullmatch(name)
            and not name.startswith(("kafka.", "spark.", "gateway.groups."))
            and name.rpartition(".")[2] not in FILE_ENDINGS
        ):
            assert name in known, f"{name_of(page)} names `{name}`, which is no setting"
    for block in code_blocks(text, "console"):
        for name in re.findall(r"--set (\S+?)=", block):
            assert name in known or name.startswith(("kafka.", "spark.", "gateway.groups.")), (
                f"{name_of(page)} sets {name}, which is no setting"
            )
    variables = RESERVED_VARIABLES | {"HOLDFAST_KAFKA_BOOTSTRAP_SERVERS"} | {k.variable for k in KNOWN.values()}
    assert set(re.findall(r"\bHOLDFAST_\w+", text)) <= variables


FILE_ENDINGS = {"avsc", "lock", "md", "py", "service", "sh", "toml", "yml", "client"}


@every_guide
def test_python_compiles_and_imports_what_exists(page: Path) -> None:
    for block in code_blocks(page.read_text(), "python"):
        parsed = compile(block, name_of(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
        for statement in parsed.body:
            if isinstance(statement, ast.ImportFrom):
                assert statement.module is not None
                module = import_module(statement.module)
                assert [alias.name for alias in statement.names if not hasattr(module, alias.name)] == []


@every_guide
def test_named_tests_exist(page: Path) -> None:
    for span in code_spans(page.read_text()):
        if "::" in span:
            file, _, name = span.partition("::")
            found = {test for path in ROOT.joinpath("tests").rglob(file) for test in names_of_tests(path)}
            assert name in found, f"{name_of(page)} names `{span}`, which does not exist"


@pytest.mark.parametrize(
    ("title", "rows_min"),
    [
        ("Agreement with Kafka's releases where", 11),
        ("Agreement with Apache Kafka 4.4.0 where", 6),
        ("Deliberate differences from Apache Kafka", 20),
        ("Deliberate differences of the share gateway", 12),
    ],
)
def test_the_tables_of_differences_from_kafka_have_a_test_in_every_row(title: str, rows_min: int) -> None:
    text = (ROOT / "docs" / "protocol.md").read_text()
    section = text.split(f"## {title}")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= rows_min
    assert [row for row in rows if not re.search(r"`(test_\w+\.py::test_\w+|\w+\.txt::[^`]+)`", row)] == []


@cache
def names_of_tests(file: Path) -> set[str]:
    """Return the names of the tests in a file: functions of a module, titles of text scenarios."""
    if file.suffix == ".txt":
        return set(re.findall(r"^== (.*)$", file.read_text(), re.MULTILINE))
    return {
        node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def installed_by_name(text: str) -> list[str]:
    """Return the lines that install something of ours from a package index, where nothing of ours is."""
    return [
        line
        for line in text.splitlines()
        if re.search(r"\bpip3? install(\s+[\w\-\[\]]+)*\s+['\"]?holdfast", line) or "holdfast[" in line
    ]


def test_what_installs_by_name_is_found() -> None:
    lines = ["pip install holdfast", "$ bin/pip install 'holdfast[spark]'", "the extra `holdfast[spark]`"]
    lines += ["pip install -U holdfast-kafka[history]"]
    assert installed_by_name("\n".join(lines)) == lines
    assert installed_by_name("pip install 'dist/holdfast_kafka-0.1.0-py3-none-any.whl[history]'") == []


def test_nothing_tells_to_install_by_name_what_is_somebody_elses() -> None:
    texts = [*PAGES, ROOT / "Makefile", ROOT / "Dockerfile", *(ROOT / "holdfast").rglob("*.py")]
    texts += [path for path in (ROOT / "deploy").rglob("*") if path.suffix in (".py", ".service")]
    assert {name_of(path): found for path in texts if (found := installed_by_name(path.read_text()))} == {}
