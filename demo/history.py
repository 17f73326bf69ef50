"""The second act: compaction folds the log, loads get short, the log is pruned, and the history still has what is gone from it."""

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from demo.busy import Answered, count_wrong, write_much
from demo.daemon import Daemon
from demo.orders import Placed
from demo.verdict import Check
from demo.worker import GROUP, Ledger
from holdfast.records.share.batches import STATE_NAMES, StateBatch

_COMMAND_TIMEOUT_S: Final = 900.0
_PRUNING_TIMEOUT_S: Final = 300.0
_POLL_S: Final = 0.2

#: With these a log partition is pruned as soon as a third of it is dead, however small it is.
_EAGER: Final = {
    "pruning_dead_share": "0.33",
    "pruning_dead_bytes_min": "0",
    "pruning_check_interval_ms": "200",
}


@dataclass(frozen=True)
class Moment:
    """What the daemon had answered at an instant."""

    time_ms: int
    ledgers: dict[int, Ledger]

    @classmethod
    def now(cls, ledgers: Mapping[int, Ledger]) -> "Moment":
        """Return what it has answered by now."""
        return cls(round(time.time() * 1_000), {partition: copy(ledger) for partition, ledger in ledgers.items()})


class HistoryAct:
    """The second act."""

    def __init__(self, console: Console, daemon: Daemon, bootstrap_servers: str, topic: str, directory: Path) -> None:
        self.topics: list[str] = [f"{topic}-busy", f"holdfast-snapshots-{topic}"]
        self.checks: list[Check] = []
        self._console = console
        self._daemon = daemon
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._job = {
            "snapshots.topic": self.topics[1],
            "compaction.group": f"job-{topic}",
            "compaction.checkpoint.dir": str(directory / "checkpoint"),
            "compaction.history.dir": str(directory / "history"),
            "compaction.master": "local[2]",
            "compaction.state.partitions": "2",
            "compaction.trigger.interval.ms": "500",
            # For a job of seconds, compiling well costs more than it gains.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }

    async def play(self, orders: Placed, power_cut: Moment) -> None:
        """Play it; the daemon runs before and after."""
        self._console.rule("The log is folded")
        answered = await self._grow_log()
        records = await self._count_records()
        whole = await self._restart("reads the whole log", {"snapshots.topic": ""})
        await self._fold_log(records)
        fast = await self._restart("begins with the snapshots", self._job | _EAGER | {"compaction.run": "true"})
        restores = (await self._daemon.query("metrics"))["holdfast_restores_total"]
        self._check(
            f"The daemon read a tenth or less: {restores:.0f} log partitions were restored from a snapshot.",
            restores > 0 and fast * 10 <= whole,
        )
        wrong = await count_wrong(self._daemon.address, answered)
        self._check(f"All {len(answered):,} states are what was written last.", not wrong, f"{wrong} are not")
        await self._watch_pruning(records)
        self._console.rule("The history")
        await self._read_history(orders, power_cut)

    # ---- scenes ------------------------------------------------------------------------------------------------------

    async def _grow_log(self) -> Answered:
        began_s = time.monotonic()
        answered = await write_much(self._daemon.address, self._bootstrap_servers, self.topics[0])
        self._say(
            f"A busier time: {len(answered):,} more share partitions were written in {time.monotonic() - began_s:.0f} s; "
            f"the log holds {await self._count_records():,} records."
        )
        return answered

    async def _restart(self, how: str, settings: dict[str, str]) -> int:
        """Start the daemon again; returns how many records it had to read."""
        self._daemon.stop()
        ready_s = await self._daemon.start(**settings)
        loaded = await self._daemon.query("partitions")
        records: int = sum(each["records_loaded"] for each in loaded)
        self._say(
            f"The daemon starts again and {how}: {records:,} records, the longest load of a log partition took "
            f"{max(each['load_ms'] for each in loaded):,} ms; ready after {ready_s:.1f} s."
        )
        return records

    async def _fold_log(self, records: int) -> None:
        self._say("[bold]$ holdfast compact --once[/]   (Spark needs some seconds to start)")
        began_s = time.monotonic()
        settings = self._job | {
            "kafka.bootstrap.servers": self._bootstrap_servers,
            "state_topic": self._daemon.state_topic,
        }
        flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        code, printed, stderr = await self._holdfast("compact", "--once", "--json", *flags)
        if code:
            raise RuntimeError(f"The job ended with code {code}; it said:\n{stderr[-2_000:]}")
        batches = [json.loads(line) for line in printed.splitlines()]
        folded, entries, rows = (
            sum(batch[name] for batch in batches) for name in ("records", "entries", "history_rows")
        )
        self._say(
            f"It folded {folded:,} records into {entries:,} snapshots, and kept {rows:,} changes as history, in "
            f"{time.monotonic() - began_s:.0f} s."
        )
        self._check("The job has folded the whole log.", folded >= records, f"{folded} of {records} records")
        code, printed, stderr = await self._holdfast("snapshots", "verify", *self._named_topics(), "--json")
        compared = sum(row["compared"] for row in json.loads(printed or '{"partitions": []}')["partitions"])
        self._check(
            f"All {compared:,} snapshots are what the log says (holdfast snapshots verify).",
            code == 0 < compared,
            stderr,
        )

    async def _watch_pruning(self, before: int) -> None:
        """Wait until the daemon has pruned the log, which waits for the job to have read it."""
        self._say("The daemon prunes the log; what the job, now its child, has folded is no longer needed there.")
        began_s = time.monotonic()
        while True:
            left = await self._count_records()
            if left * 3 <= before or time.monotonic() - began_s > _PRUNING_TIMEOUT_S:
                break
            await asyncio.sleep(_POLL_S)
        self._say(f"The log holds {left:,} records in place of {before:,}, after {time.monotonic() - began_s:.0f} s.")
        self._check("The log is a third of what it was, or less.", left * 3 <= before)

    async def _read_history(self, orders: Placed, power_cut: Moment) -> None:
        partition, offset = next(
            (partition, offset)
            for partition, placed in enumerate(orders)
            for offset, order in placed.items()
            if order.succeeds_at == 3
        )
        named = (GROUP, self._topic, str(partition), *self._named_history())
        self._say(f"[bold]$ holdfast history {GROUP} {self._topic} {partition} --offset {offset}[/]")
        _, table, _ = await self._holdfast("history", *named, "--offset", str(offset))
        self._show(table)
        code, printed, stderr = await self._holdfast("history", *named, "--offset", str(offset), "--json")
        steps = json.loads(printed or "[]")
        deliveries = [(step["state"], step["delivery_count"]) for step in steps if step["delivery_count"] is not None]
        self._check(
            "The history has all three deliveries of that order.",
            code == 0 and deliveries == [("available", 1), ("available", 2), ("acknowledged", 3)],
            f"{deliveries} {stderr}",
        )
        at = ("--at", str(power_cut.time_ms))
        self._say(f"[bold]$ holdfast history {GROUP} {self._topic} --at {power_cut.time_ms}[/]   (the power cut)")
        _, table, _ = await self._holdfast("history", GROUP, self._topic, *at, *self._named_history())
        self._show(table)
        _, printed, stderr = await self._holdfast("history", GROUP, self._topic, *at, *self._named_history(), "--json")
        found = {row["partition"]: row["state"] for row in json.loads(printed or "[]")}
        differing = [
            f"partition {partition}"
            for partition, ledger in power_cut.ledgers.items()
            if not ledger.agrees_with(*_state_of(found.get(partition)))
        ]
        self._check(
            "It has the state at the power cut as it was answered then.", not differing, f"{differing} {stderr}"
        )

    # ---- what they need ----------------------------------------------------------------------------------------------

    def _named_topics(self) -> tuple[str, ...]:
        state_topic = ("--state-topic", self._daemon.state_topic)
        return (*state_topic, "--snapshot-topic", self.topics[1], "--bootstrap-server", self._bootstrap_servers)

    def _named_history(self) -> tuple[str, ...]:
        history = ("--history-dir", self._job["compaction.history.dir"], "--job-group", self._job["compaction.group"])
        return (*history, "--state-topic", self._daemon.state_topic, "--bootstrap-server", self._bootstrap_servers)

    async def _holdfast(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command of the tool; returns its exit code, its standard output and its standard error."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "holdfast", *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
        try:
            async with asyncio.timeout(_COMMAND_TIMEOUT_S):
                printed, stderr = await process.communicate()
        except TimeoutError:
            raise RuntimeError(f"`holdfast {arguments[0]}` did not end within {_COMMAND_TIMEOUT_S:.0f} s.") from None
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
        assert process.returncode is not None
        return process.returncode, printed.decode(), stderr.decode()

    async def _count_records(self) -> int:
        """Return how many offsets the log has, from its start to its end."""
        return sum(row["committed"] - row["log_start"] for row in await self._daemon.query("partitions"))

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=not self._console.is_terminal)

    def _show(self, table: str) -> None:
        self._console.print(*map(str.rstrip, table.splitlines()), sep="\n", markup=False, soft_wrap=True)

    def _check(self, claim: str, holds: bool, detail: str = "") -> None:
        self.checks.append(Check(claim, holds, () if holds or not detail else [detail]))


def _state_of(state: dict[str, Any] | None) -> tuple[int, tuple[StateBatch, ...]]:
    if state is None:
        return -1, ()
    numbers = {name: number for number, name in STATE_NAMES.items()}
    return state["start_offset"], tuple(
        StateBatch(**{**batch, "delivery_state": numbers[batch["delivery_state"]]}) for batch in state["state_batches"]
    )
