"""Who types the pages: terminals, one node at a time, and what was tried and what was not."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copytree
from typing import Any, Final

from holdfast.client import ClientError, connect
from holdfast.daemon.settings.catalogue import catalogue_of
from holdfast.node_settings import SETTINGS
from tests.installed.environment import ROOT, Environment
from tests.installed.terminal import Terminal
from tests.pure.docs.blocks import Block, blocks_of, is_like, reaches_outside, steps_of
from tests.real.nodes import ONE_TRY, PATIENT
from tests.waiting import PATIENCE_S, block_until

_RUNS_A_NODE = re.compile(r"\bholdfast (serve|dev)\b")
_NEVER_ENDS = re.compile(r"\bholdfast (serve|dev|page)\b|--follow\b")
#: What keeps a busy machine from deciding what a node or a job does.
_PATIENCE: Final = {**PATIENT, "compaction.worker.start.attempts.max": 100}
#: What `holdfast dev` makes unless told otherwise.
_TOPIC_OF_DEV: Final = "orders"
#: A node for pages that begin where another page left one, but that stopped.
_NODE: Final = (
    "export HOLDFAST_KAFKA_BOOTSTRAP_SERVERS=$(holdfast broker start)",
    "holdfast serve --set share.coordinator.state.topic.replication.factor=1 "
    "--set share.coordinator.state.topic.min.isr=1",
)
#: Of a clone, what commands of pages name.
_OF_THE_CLONE: Final = ("deploy", "examples", "holdfast/records/schemas")


@dataclass
class Tally:
    """How many blocks were typed, or are only read by other tests; which were not typed and why; and what went wrong."""

    tried: int = 0
    read: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        reasons = Counter(reason for _, reason in self.skipped)
        lines = [
            f"{self.tried} blocks were run, {self.read} are read by tests/pure/docs/test_blocks.py or one that they name, "
            f"{len(self.skipped)} were not run:"
        ]
        for reason, count in reasons.most_common():
            names = ", ".join(name for name, of in self.skipped if of == reason)
            lines.append(f"  {count} × {reason} ({names})")
        return "\n".join(lines)


class Desk:
    """Types blocks in the order of their page, each page in a terminal of its own."""

    def __init__(self, environment: Environment, directory: Path) -> None:
        self.tally = Tally()
        self._environment = environment
        self._directory = directory
        self._windows = ExitStack()
        self._terminal: Terminal | None = None
        #: Of every terminal; what a page makes in the place for temporary files goes with the test.
        known = catalogue_of(SETTINGS).known
        patience = {known[name].variable: str(value) for name, value in _PATIENCE.items()}
        self._variables = environment.variables() | patience | {"TMPDIR": str(directory)}
        self._busy: list[tuple[Terminal, str]] = []
        for name in _OF_THE_CLONE:
            copytree(ROOT / name, environment.place / name)
        # Where a clone has its environment.
        (environment.place / ".venv").symlink_to(Path(environment.variables()["PATH"].partition(":")[0]).parent)

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *_: object) -> None:
        with self._windows:
            self.clear()
        self._environment.run("holdfast broker stop")

    def type_page(self, page: Path) -> None:
        """Try the blocks of a page, with a node that runs unless the page begins with one."""
        self._terminal = None
        for block in blocks_of(page):
            if block.not_run is not None:
                self.tally.skipped.append((block.name, block.not_run))
                continue
            if block.language not in ("console", "python") or "tested" in block.remarks:
                self.tally.read += 1
                continue
            try:
                self._prepare(block)
                self._try(block)
            except (AssertionError, ClientError) as problem:
                self.tally.problems.append(f"{block.name}: {problem}")
            self.tally.tried += 1

    def clear(self) -> None:
        """Press Ctrl-C in every terminal that something runs in, the last one first; each must end well."""
        while self._busy:
            terminal, command = self._busy.pop()
            if not terminal.is_busy():
                continue  # It ended by itself, which is a problem of its block.
            terminal.interrupt()
            ended = terminal.wait(command)
            if ended.code != 0:
                self.tally.problems.append(f"after Ctrl-C: {command}: exit code {ended.code}\n{ended.said}")

    def _prepare(self, block: Block) -> None:
        """Have a node run."""
        if block.page != "README.md" and not any(terminal.is_busy() for terminal, _ in self._busy):
            for command in _NODE:
                self._type(command, "")

    def _try(self, block: Block) -> None:
        if block.language == "python":
            (self._environment.place / "snippet.py").write_text(self._here(block.code))
            self._type("python snippet.py", "")
            return
        steps = steps_of(block.code)
        for step in steps:
            assert not reaches_outside(step.command), f"nobody types here what changes the machine: {step.command}"
        for step in steps:
            self._type(self._here(step.command), self._here(step.shown))

    def _type(self, command: str, shown: str) -> None:
        """Type a command, in another terminal where the last one is busy; see its exit code and what it says."""
        if _RUNS_A_NODE.search(command):
            self.clear()  # Two nodes cannot listen at one address.
        if self._terminal is None or self._terminal.is_busy():
            self._terminal = Terminal(self._environment.place, self._variables)
            self._windows.callback(self._terminal.close)
        terminal = self._terminal
        if _NEVER_ENDS.search(command):
            terminal.begin(command)
            self._busy.append((terminal, command))
            self._wait_at_work(terminal, command, shown)
            return
        ended = terminal.type(command)
        assert ended.code == 0, f"{command}: exit code {ended.code}\n{ended.said}"
        assert not shown or is_like(shown, ended.said), f"{command}: the page shows\n{shown}\nand it said\n{ended.said}"

    def _wait_at_work(self, terminal: Terminal, command: str, shown: str) -> None:
        """Wait until a command that goes on does what it is for, and says what the page shows."""

        def is_at_work() -> bool:
            assert terminal.is_busy(), f"{command} ended:\n{terminal.said()}"
            is_ready = self._is_ready(command) if _RUNS_A_NODE.search(command) else terminal.said().strip() != ""
            return is_ready and (not shown or is_like(f"{shown.strip()}…", terminal.said()))

        try:
            block_until(is_at_work, f"{command} being at work", PATIENCE_S)
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{terminal.said()}") from None

    def _here(self, text: str) -> str:
        """Put the places of this machine in place of those that the pages name."""
        places = {"127.0.0.1:9492": self._environment.address, "/tmp/holdfast": str(self._directory)}
        for usual in ("127.0.0.1:9092", "localhost:9092"):
            if usual in text:
                places[usual] = self._bootstrap_servers()
        for named, here in places.items():
            text = text.replace(named, here)
        return text

    def _is_ready(self, command: str) -> bool:
        """Tell whether the node serves; where the command makes a topic as well, whether that is there."""
        try:
            if "holdfast dev" in command:
                self._ask("resolve-topic", name=_TOPIC_OF_DEV)
            return bool(self._ask("status")["is_ready"])
        except ClientError:
            return False

    def _bootstrap_servers(self) -> str:
        """Return the brokers of the node that runs."""
        return str(self._ask("settings")["kafka.bootstrap.servers"])

    def _ask(self, command: str, **arguments: str) -> dict[str, Any]:
        """Give the node an admin command, at less cost than by the tool."""

        async def ask() -> dict[str, Any]:
            async with connect(self._environment.address, ONE_TRY) as client:
                return dict(await client.admin(command, **arguments))

        return asyncio.run(ask())
