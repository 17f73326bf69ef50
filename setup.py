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
    "holdfast/runtime/broker_connection.py",  # a few calls a request, and tests stand in for it
    "holdfast/runtime/brokers.py",  # the same
    "holdfast/runtime/build.py",  # tells how the others were built
    "holdfast/runtime/memory_log.py",  # runs in tests only
    "holdfast/runtime/metrics.py",  # a few counts a request, and its gauges are set to integers
    "holdfast/runtime/shell.py",  # starts and stops
}
#: What every request goes through in the daemon; the rest of it runs seldom.
DAEMON = ("apis", "connection", "operations", "service", "shard", "shard_load", "shard_state", "topic_gate")


def compiled_modules() -> list[Extension]:
    """Return what mypyc makes of the hot path: two libraries, which are built side by side, and a name for each module."""
    from mypyc.build import mypycify

    records, runtime = (
        [str(path) for path in sorted(Path(package).glob("*.py")) if path.stem != "__init__"]
        for package in ("holdfast/records", "holdfast/runtime")
    )
    records = [path for path in records if path not in INTERPRETED]
    node = [path for path in runtime if path not in INTERPRETED] + [f"holdfast/daemon/{name}.py" for name in DAEMON]
    return mypycify([*records, *node], opt_level="2", separate=[(records, "holdfast_records"), (node, "holdfast_node")])


#: pip asks for the metadata first, which are the same either way, and would have all types checked twice.
ASKS_FOR_METADATA = bool({"egg_info", "dist_info"} & set(sys.argv))

setup(
    ext_modules=compiled_modules() if os.environ.get("COMPILE_HOLDFAST") == "1" and not ASKS_FOR_METADATA else [],
    options={"build_ext": {"parallel": os.cpu_count()}},
)
