"""Fuzz decoders of bytes from outside, led by what code an input reaches; a crash leaves its input in `build/fuzz`.

Each target has a process of its own, with bounds on time and memory for one input.

Example: python -m tests.fuzz --seconds 60 connection record
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

BUILD: Final = Path(__file__).parents[2] / "build" / "fuzz"
#: Of one input: time, memory of the process, and one allocation.
_BOUNDS: Final = ("-timeout=5", "-rss_limit_mb=1024", "-malloc_limit_mb=256", "-max_len=8192")
#: How libFuzzer counts at the end.
_DONE: Final = re.compile(r"^(?:Done|#)(\d+)", re.MULTILINE)


def main(arguments: Sequence[str]) -> int:
    """Run the targets one after the other; returns the number of those that failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", help="their names, or beginnings of them (default: all)")
    parser.add_argument("--seconds", type=int, default=60, help="for each (default: 60)")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        _fuzz(options.one, options.seconds)
    from tests.fuzz.targets import TARGETS

    chosen = [name for name in TARGETS if not options.targets or name.startswith(tuple(options.targets))]
    if options.list:
        print(*chosen, sep="\n")
        return 0
    return sum(not _run(name, options.seconds) for name in chosen)


def _run(name: str, seconds: int) -> bool:
    """Fuzz one target in a process of its own; returns whether it held."""
    command = [sys.executable, "-m", "tests.fuzz", "--seconds", str(seconds), "--one", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    executions = max(map(int, _DONE.findall(said)), default=0)
    print(
        f"{name:28} {executions:>10,} inputs in {seconds} s  {'held' if done.returncode == 0 else 'FAILED'}", flush=True
    )
    if done.returncode:
        print(said[-4_000:])
    return done.returncode == 0


def _fuzz(name: str, seconds: int) -> None:
    """Fuzz one target in this process, which ends with it."""
    import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]  # only `make fuzz` installs it

    with atheris.instrument_imports(include=["holdfast", "fastavro", "kio"]):
        from tests.fuzz.targets import TARGETS, try_input

    target = TARGETS[name]
    corpus = BUILD / "corpus" / re.sub(r"\W+", "-", name)
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    crashes = f"-artifact_prefix={corpus.parent.parent}/{corpus.name}-"
    atheris.Setup(
        [sys.argv[0], str(corpus), crashes, f"-max_total_time={seconds}", *_BOUNDS],
        lambda data: try_input(target, data),
    )
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
