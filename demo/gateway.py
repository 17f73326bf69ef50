"""The act of the gateway: stock share consumers work off orders of a Kafka that has no share groups, and the node is killed midway."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from rich.console import Console

from demo.daemon import Daemon
from demo.display import Display
from demo.orders import place_orders
from demo.page import PageBeside
from demo.verdict import Check, read_log
from demo.worker import PATIENT
from holdfast.broker import FAST_START, EmbeddedKafka, find_java, kafka_classpath
from holdfast.broker.processes import ending_with_us
from holdfast.client import connect
from holdfast.jars.cache import KAFKA_VERSION_WITHOUT_SHARE_GROUPS
from holdfast.kafka.topic_ids import parse_topic_id
from holdfast.records.share.batches import ACKNOWLEDGED

PARTITIONS: Final = 4
ORDERS_PER_PARTITION: Final = 500
GROUP: Final = "packers"
_TOPIC: Final = "gateway-orders"
_STATE_TOPIC: Final = "holdfast-gateway"
_SEED: Final = 392
_GATEWAY: Final = {
    "gateway.topics": _TOPIC,
    "gateway.groups.default.share.auto.offset.reset": "earliest",
    # The node that is started again need not wait for the session of the one that was killed.
    "membership": "static",
}
#: A share consumer is given whole record batches.
_ORDERS_PER_BATCH: Final = 10
_WORK_MS: Final = 5
_KILLED_AT: Final = 0.5
_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.05
#: Until all that the workers wrote is read.
_HEARD_S: Final = 0.5
_NAMED: Final = 5

#: Partition and offset of an order.
Place: TypeAlias = tuple[int, int]


@dataclass
class Book:
    """All that the workers said, in the order in which it was read."""

    #: How often an order was given to a worker.
    given: Counter[Place] = field(default_factory=Counter)
    #: How often a worker was told that its acknowledgement of an order is kept.
    accepted: Counter[Place] = field(default_factory=Counter)
    #: How often a worker was not told what became of its acknowledgement.
    unsure: Counter[Place] = field(default_factory=Counter)
    by_worker: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def note(self, worker: str, line: str) -> None:
        """Write down a line of a worker."""
        what, partition, offset, *_ = line.split()
        place = (int(partition), int(offset))
        {"given": self.given, "accepted": self.accepted, "unsure": self.unsure}[what][place] += 1
        self.by_worker[worker][what] += 1

    @property
    def in_flight(self) -> set[Place]:
        """Return the orders that a worker has, and was not told of yet."""
        return {place for place, count in self.given.items() if count > self.accepted[place]}


class GatewayAct:
    """The act; `checks` says what held."""

    def __init__(self, console: Console, directory: Path, page: PageBeside) -> None:
        self.checks: list[Check] = []
        self._page = page
        self._console = console
        self._directory = directory
        self._book = Book()

    async def play(self) -> None:
        """Play it on a Kafka of its own."""
        self._console.rule(f"Stock consumers, on Kafka {KAFKA_VERSION_WITHOUT_SHARE_GROUPS} without share groups")
        async with AsyncExitStack() as stack:
            kafka = stack.enter_context(
                EmbeddedKafka(version=KAFKA_VERSION_WITHOUT_SHARE_GROUPS, jvm_options=FAST_START)
            )
            place_orders(
                kafka.bootstrap_servers, _TOPIC, PARTITIONS, ORDERS_PER_PARTITION, _SEED, per_batch=_ORDERS_PER_BATCH
            )
            stack.enter_context(self._page.showing(kafka.bootstrap_servers, _STATE_TOPIC, self._directory))
            node = Daemon(kafka.bootstrap_servers, _STATE_TOPIC, self._directory, 1, _GATEWAY)
            stack.callback(node.stop)
            await node.start()
            workers = self._commands()
            for name, command in workers:
                await self._start(name, command, node.address, stack)
            names = " and ".join(name for name, _ in workers)
            self._say(f"The workers are {names}, as their makers ship them; all they know is {node.address}.")
            await self._work(node, kafka.bootstrap_servers)

    def _commands(self) -> Sequence[tuple[str, Sequence[str]]]:
        """Return the workers, by name, and how each is run."""
        here = Path(__file__).parent
        python = ("confluent-kafka", (sys.executable, str(here / "stock_worker.py")))
        if not _can_compile():
            self._say("This Java has no compiler, as that of a JDK has, so the worker in Java stays away.")
            return (python,)
        java = (find_java(), *FAST_START, "-cp", kafka_classpath(), str(here / "StockWorker.java"))
        return (python, ("KafkaShareConsumer", java))

    async def _start(self, name: str, command: Sequence[str], address: str, stack: AsyncExitStack) -> None:
        """Start a worker, and note the lines that it writes until the end of the act."""
        with (self._directory / f"{name}.log").open("ab") as complaints:
            process = await asyncio.create_subprocess_exec(
                *ending_with_us([*command, address, GROUP, _TOPIC, str(_WORK_MS)]),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=complaints,
            )
        assert process.stdout is not None
        lines = process.stdout

        async def note() -> None:
            async for line in lines:
                self._book.note(name, line.decode())

        noting = asyncio.create_task(note())

        async def end() -> None:
            if process.returncode is None:
                process.kill()
                await process.wait()
            await noting

        stack.push_async_callback(end)

    async def _work(self, node: Daemon, bootstrap_servers: str) -> None:
        """Wait until all orders are finished, and kill the node in the middle."""
        book = self._book
        with Display(self._console, PARTITIONS, ORDERS_PER_PARTITION) as display:
            await self._until(node, display, lambda: display.share_finished >= _KILLED_AT and book.in_flight)
            node.kill()
            await asyncio.sleep(_HEARD_S)
            accepted, in_flight = set(book.accepted), book.in_flight
            display.say(
                f"[bold]kill -9:[/] the node is gone; {len(accepted):,} orders were accepted, {len(in_flight)} were in flight."
            )
            at_the_kill = await asyncio.to_thread(_finished, bootstrap_servers)
            ready_s = await node.start()
            display.say(f"The node is back, ready {ready_s:.1f} s after its start; nobody told the workers.")
            await self._until(node, display, lambda: display.share_finished >= 1)
            await asyncio.sleep(_HEARD_S)
        at_the_end = await asyncio.to_thread(_finished, bootstrap_servers)
        self._judge(accepted, in_flight, at_the_kill, at_the_end)

    async def _until(self, node: Daemon, display: Display, condition: Callable[[], object]) -> None:
        """Show how many orders the state topic has as finished, until a condition holds."""
        async with asyncio.timeout(_TIMEOUT_S), connect(node.address, PATIENT) as client:
            topic_id = parse_topic_id((await client.admin("resolve-topic", name=_TOPIC))["topic_id"])
            while not condition():
                for partition in range(PARTITIONS):
                    summary = await client.read_summary(GROUP, topic_id, partition)
                    if summary.start_offset >= 0:
                        display.progressed(partition, summary.start_offset + summary.delivery_complete_count)
                await asyncio.sleep(_POLL_S)

    def _judge(
        self, accepted: set[Place], in_flight: set[Place], at_the_kill: set[Place], at_the_end: set[Place]
    ) -> None:
        """Compare what the workers were told with what the state topic held."""
        book = self._book
        orders = {(partition, offset) for partition in range(PARTITIONS) for offset in range(ORDERS_PER_PARTITION)}
        again = {place for place, count in book.given.items() if count > 1}
        unheard = orders - book.accepted.keys()
        twice = {place for place, count in book.accepted.items() if count > 1}
        self._say(f"{len(again)} orders came twice{_name(again)}.")
        if unheard:
            self._say(f"{len(unheard)} orders were accepted, and the answer was lost with the node{_name(unheard)}.")
        self._check("Each order was accepted, and none twice.", twice | (unheard - at_the_kill))
        self._check(
            "Those that came twice, and those whose answer was lost, were in flight at the kill.",
            (again | unheard) - in_flight,
        )
        self._check("The state topic had all at the kill that the workers were told of.", accepted - at_the_kill)
        self._check("It had no other, but of what was in flight.", at_the_kill - accepted - in_flight)
        self._check("In the end it has all orders as finished.", orders ^ at_the_end)

    def _check(self, claim: str, wrong: set[Place]) -> None:
        self.checks.append(Check(claim, not wrong, [f"{len(wrong)} are not{_name(wrong)}"] if wrong else ()))

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=not self._console.is_terminal)


def _finished(bootstrap_servers: str) -> set[Place]:
    """Return the orders that the state topic has as finished."""
    contents = read_log(bootstrap_servers, _STATE_TOPIC)
    below = {(partition, offset) for partition, start in contents.start_offsets.items() for offset in range(start)}
    return below | {
        (partition, offset)
        for partition, deliveries in contents.deliveries.items()
        for offset, (state, _) in deliveries.items()
        if state == ACKNOWLEDGED
    }


def _can_compile() -> bool:
    """Tell whether this Java compiles a source file that it is given, as that of a JDK does."""
    listed = subprocess.run([find_java(), "--list-modules"], capture_output=True, text=True, timeout=60, check=False)
    return "jdk.compiler@" in listed.stdout


def _name(places: Collection[Place]) -> str:
    """Return the first of some orders, in brackets."""
    named = [f"{partition}:{offset}" for partition, offset in sorted(places)[:_NAMED]]
    more = "" if len(places) <= _NAMED else ", …"
    return f" ({', '.join(named)}{more})" if named else ""
