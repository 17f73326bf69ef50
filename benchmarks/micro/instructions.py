"""How many instructions a request takes of a node's thread, by room, as valgrind counts them: the same on a busy machine as on a quiet one.

    python -m benchmarks.micro.instructions --connections 1

With `--of code` or `--of data` it counts what a processor's first cache lacks of it, by a simulated cache of 32 KiB each.

It is `benchmarks.micro.node` under callgrind, without the kernel. What a library of Python or C does counts for the function of ours
that calls it. What runs in Python's interpreter is a row of its own, and the broker of this benchmark, which lies in the process, too.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks.generator import Workload
from benchmarks.micro import node
from benchmarks.share_state import MIXES
from holdfast.daemon.server.wire.requests import WireBounds
from holdfast.runtime.build import BUILD
from holdfast.runtime.kafka_log.log import KafkaLogConfig

# valgrind makes the process fifty times as slow, so time goes so much slower for all that goes by it.
_SLOWED: Final = 50
_TICK_MS: Final = 50 * _SLOWED
_IDLE_FETCH_S: Final = node._IDLE_FETCH_S * _SLOWED
#: Where many callers write while it answers; one alone waits for it, whatever it takes.
_BROKER_S: Final = node.BROKER_S * _SLOWED
_SLICE_MS: Final = WireBounds().slice_ms * _SLOWED
#: Functions that count for their callers: of Python but its interpreter, of mypyc's library, and of C.
_SKIPPED: Final = (
    *(f"_Py{letter}*" for letter in "ABCDFGHILMNORSTUVW_"),
    *("Py*", "0x*", "mem*", "__mem*", "malloc*", "free*", "_int*", "calloc*", "realloc*", "unlink*", "__Pyx*"),
    *(
        f"CPy{name}*"
        for name in ("Arg", "Bytes", "Dict", "Gen", "Get", "Iter", "List", "Seq", "Str", "Super", "Tagged")
    ),
)
#: A function that runs once for each request.
ONCE_A_REQUEST: Final = "CPyDef_holdfast___share___calls___answer"
_FUNCTION: Final = re.compile(r"(c?)fn=\((\d+)\)(?: (.*))?")
_OBJECT: Final = re.compile(r"(c?)ob=\((\d+)\)(?: (.*))?")
_CALLS: Final = re.compile(r"calls=(\d+)")
_COST: Final = re.compile(r"[\d+*-]\S*((?: \d+)+)")
#: What is counted, as callgrind calls it.
_EVENTS: Final = {"instructions": ("Ir",), "code": ("I1mr",), "data": ("D1mr", "D1mw")}
#: The caches of one core of the machines that are measured: 32 KiB each for code and data, and 512 KiB behind them.
_CACHES: Final = ("--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=524288,8,64")


class _Switch:
    """The module `time` for `benchmarks.micro.node`, which asks for the thread's time where its measurement begins and ends."""

    def __init__(self) -> None:
        self._is_on = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the module has
        return getattr(time, name)

    def thread_time(self) -> float:
        """Begin or end to count, and return the time."""
        self._is_on = not self._is_on
        subprocess.run(
            ["callgrind_control", "-i", "on" if self._is_on else "off", str(os.getpid())],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return time.thread_time()


def count(lines: Iterable[str], counted: str = "instructions") -> tuple[Counter[str], int]:
    """Return the instructions, or misses of `code` or `data`, by room, and the number of requests, of a file of callgrind's."""
    functions: dict[str, str] = {}
    objects: dict[str, str] = {}
    rooms: Counter[str] = Counter()
    requests, room, called, is_call = 0, "", "", False
    in_object = ""
    columns: list[int] = []
    for line in lines:
        if line.startswith("events:"):
            columns = [line.split().index(event) - 1 for event in _EVENTS[counted]]
        elif match := _OBJECT.match(line):
            is_called, number, name = match.groups()
            objects.setdefault(number, name or "")
            if not is_called:
                in_object = objects[number]
        elif match := _FUNCTION.match(line):
            is_called, number, name = match.groups()
            functions.setdefault(number, name or "")
            if is_called:
                called = functions[number]
            else:
                room = _room(functions[number], in_object)
        elif match := _CALLS.match(line):
            is_call = True
            requests += int(match[1]) * (called == ONCE_A_REQUEST)
        elif match := _COST.match(line):
            costs = match[1].split()  # without zeros at the end
            rooms[room] += 0 if is_call else sum(int(costs[column]) for column in columns if column < len(costs))
            is_call = False
    return rooms, requests


def _room(function: str, in_object: str) -> str:
    if "_holdfast___" in function:
        names = function.partition("_holdfast___")[2].split("___")
        path = Path("holdfast")
        for name in names:
            if not (path / name).is_dir():
                break
            path /= name
        return f"{path}/"
    if "/holdfast/" in in_object:
        return f"{in_object[in_object.rindex('/holdfast/') + 1 : in_object.rindex('/')]}/ (C)"
    if "uvloop" in in_object:
        return "the event loop"
    if function.startswith("_PyEval_EvalFrameDefault"):
        return "the interpreter, for the broker above all"
    return "all else"


def _measure(arguments: Sequence[str], counted: str) -> Iterator[str]:
    """Run this module under callgrind, and yield the lines of its file."""
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed; Debian has it in the package valgrind.")
    with tempfile.TemporaryDirectory() as directory:
        found = Path(directory) / "callgrind"
        flags = ["--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={found}"]
        flags += () if counted == "instructions" else _CACHES
        flags += [f"--fn-skip={pattern}" for pattern in _SKIPPED]
        command = ["valgrind", "--quiet", *flags, sys.executable, "-m", "benchmarks.micro.instructions", "--serve"]
        subprocess.run([*command, *arguments], check=True, stdout=sys.stderr)
        with found.open() as file:
            yield from file


def _serve(workload: Workload, seconds: float) -> None:
    module: Any = node
    make_shell = module.CoordinatorShell

    def make_slowed(config: object, log_config: KafkaLogConfig, *rest: object, **named: object) -> object:
        log_config = replace(log_config, fetch_wait_ms=log_config.fetch_wait_ms * _SLOWED)
        return make_shell(config, log_config, *rest, **{**named, "tick_ms": _TICK_MS})

    module.time, module.CoordinatorShell = _Switch(), make_slowed
    module.BROKER_S = _BROKER_S if workload.connections > 1 else node.BROKER_S
    module._IDLE_FETCH_S = _IDLE_FETCH_S
    module.WireBounds = partial(WireBounds, slice_ms=_SLICE_MS)
    node.make_log_reach_fake_brokers()
    uvloop.run(node.serve([workload], seconds))


def main(arguments: Sequence[str]) -> None:
    """Count and print the instructions of one workload, or what a cache lacks."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.micro.instructions", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--api", choices=["write", "read"], default="write")
    parser.add_argument("--keys", type=int, choices=[1, 16], default=1)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--mix", choices=list(MIXES), default="spread")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--of", choices=list(_EVENTS), default="instructions", help="what is counted")
    options = parser.parse_args(arguments)
    if options.serve:
        workload = Workload(api=options.api, keys=options.keys, connections=options.connections, mix=options.mix)
        _serve(workload, options.seconds)
        return
    if BUILD != "compiled":
        sys.exit(
            "Instructions are counted by the names that compiled functions have: BUILD=compiled, or `make compiled`."
        )
    rooms, requests = count(_measure(arguments, options.of), options.of)
    if not requests:
        sys.exit("No request was seen: the compiler has put the function that answers one into its caller.")
    for room, number in rooms.most_common():
        print(f"{number / requests:9,.0f}  {room}")
    print(f"{rooms.total() / requests:9,.0f}  a request, of {requests:,}")


if __name__ == "__main__":
    main(sys.argv[1:])
