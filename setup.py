"""Compile the hot path into C where COMPILE_HOLDFAST=1; everything else about the package is in pyproject.toml.

mypyc does it, and needs `deploy/requirements-build.lock`, a C compiler, Python's headers, and `--no-build-isolation`, because it reads the
types of the libraries that we use. Without the variable the package is pure Python, and behaves the same.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

#: What stays interpreted of the two packages that are compiled, and why.
INTERPRETED = {
    "holdfast/records/batches.py",  # mypyc has no subclass of tuple
    "holdfast/kafka/connection.py",  # a few calls a request, and tests stand in for it
    "holdfast/kafka/leaders.py",  # the same
    "holdfast/runtime/build.py",  # tells how the others were built
    "holdfast/runtime/memory_log.py",  # runs in tests only
    "holdfast/runtime/metrics.py",  # names of instruments, and its gauges are set to integers
    "holdfast/runtime/kafka_log/shell.py",  # starts and stops
}
#: What every request goes through in the daemon; the rest of it runs seldom.
DAEMON = (
    "apis",
    "connection",
    "operations",
    "peers",
    "service",
    "shard",
    "shard_load",
    "shard_state",
    "share_calls",
    "state_bounds",
    "topic_gate",
    "turns",
)


def compiled_sources() -> dict[str, list[str]]:
    """Return what is compiled, by the name of the library that it goes to; the two are built side by side."""
    records, runtime = (
        [str(path) for path in sorted(Path(package).glob("*.py")) if path.stem != "__init__"]
        for package in ("holdfast/records", "holdfast/runtime")
    )
    node = [*runtime, *(f"holdfast/daemon/{name}.py" for name in DAEMON)]
    return {
        "holdfast_records": [path for path in records if path not in INTERPRETED],
        "holdfast_node": [path for path in node if path not in INTERPRETED],
    }


def _extensions() -> list[Extension]:
    # pip asks for the metadata first; they are the same either way, and all types would be checked twice.
    if os.environ.get("COMPILE_HOLDFAST") != "1" or {"egg_info", "dist_info"} & set(sys.argv):
        return []
    from mypyc.build import mypycify

    libraries = compiled_sources()
    sources = [path for paths in libraries.values() for path in paths]
    return mypycify(sources, opt_level="2", separate=[(paths, name) for name, paths in libraries.items()])


if __name__ == "__main__":
    setup(ext_modules=_extensions(), options={"build_ext": {"parallel": os.cpu_count()}})
