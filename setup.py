"""Compile the hot path into C where COMPILE_HOLDFAST=1; everything else about the package is in pyproject.toml.

mypyc does it, beside two extensions that are written in C, and needs `deploy/requirements-build.lock`, a C compiler, Python's headers, and
`--no-build-isolation`, because it reads the types of the libraries that we use. Without the variable the package is pure Python, and
behaves the same.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

#: The rooms of each library, and single modules of others. What every request and every load goes through is compiled;
#: the rest of the daemon runs seldom.
COMPILED = {
    "holdfast_records": (
        "kafka/protocol",
        "kafka/topic_ids.py",
        "records/errors.py",
        "records/log",
        "records/share",
        "records/share/codecs",
        "records/share/snapshot_store",
        "api",
    ),
    "holdfast_node": (
        "clock.py",
        "delivery/share_partition",
        "kafka/brokers",
        "metrics/instruments.py",
        "daemon/access/authorizer.py",
        "daemon/partitions/timed_writes.py",
        "runtime",
        "runtime/partition",
        "runtime/kafka_log",
        "runtime/kafka_log/sending",
        "daemon/server",
        "daemon/server/wire",
        "share/access.py",
        "share/calls.py",
        "share/config.py",
        "share/decisions.py",
        "share/load.py",
        "share/metrics.py",
        "share/operations.py",
        "share/read_or_initialize.py",
        "share/refusals.py",
        "share/service.py",
        "share/state.py",
        "share/state_bounds.py",
        "share/topic_gate.py",
        "daemon/topics/metadata_image.py",
    ),
}
#: What stays interpreted in them, and why.
INTERPRETED = {
    "holdfast/kafka/protocol/error_codes.py",  # an enum is a class of Python's either way
    "holdfast/kafka/protocol/sasl_calls.py",  # once per connection
    "holdfast/kafka/protocol/scram.py",
    "holdfast/records/share/batches.py",  # mypyc has no subclass of tuple
    "holdfast/runtime/build.py",  # tells how the others were built
    "holdfast/runtime/kafka_log/shell.py",  # starts and stops
    "holdfast/daemon/server/admin.py",  # seldom, from here on
    "holdfast/daemon/server/wire/admission.py",
    "holdfast/daemon/server/wire/security.py",
    "holdfast/daemon/server/security.py",
    "holdfast/daemon/server/cluster_view.py",
    "holdfast/daemon/server/find_coordinator.py",
    "holdfast/daemon/server/listener.py",
    "holdfast/daemon/server/metadata.py",
    "holdfast/daemon/server/metrics.py",
    "holdfast/daemon/server/other_nodes.py",
    "holdfast/daemon/server/schemas.py",
    "holdfast/daemon/server/sockets.py",
    "holdfast/daemon/server/topics_view.py",
}
#: What is written in C, one extension of all files of a room.
IN_C = (Path("holdfast/kafka/protocol/native"), Path("holdfast/records/native"))


def compiled_sources() -> dict[str, list[str]]:
    """Return what is compiled, by the name of the library that it goes to; the two are built side by side."""
    return {
        library: [
            str(path)
            for room in rooms
            for path in (
                [Path("holdfast", room)] if room.endswith(".py") else sorted(Path("holdfast", room).glob("*.py"))
            )
            if path.stem != "__init__" and str(path) not in INTERPRETED
        ]
        for library, rooms in COMPILED.items()
    }


def _extensions() -> list[Extension]:
    # pip asks for the metadata first; they are the same either way, and all types would be checked twice.
    if os.environ.get("COMPILE_HOLDFAST") != "1" or {"egg_info", "dist_info"} & set(sys.argv):
        return []
    from mypyc.build import mypycify

    libraries = compiled_sources()
    sources = [path for paths in libraries.values() for path in paths]
    # The second level takes the compiler two fifths more time, and makes 5 to 8 % more writes a second (benchmarks/findings/hot-path.md).
    extensions = mypycify(sources, opt_level="2", separate=[(paths, name) for name, paths in libraries.items()])
    for extension in extensions:
        # Python's own flags ask for debug information; nobody steps through generated C, and symbols stay for profilers.
        extension.extra_compile_args.append("-g0")
        # All that calls one of our functions by its name is in the same library, so calls need no table and may be inlined.
        extension.extra_compile_args.append("-fno-semantic-interposition")
    extensions += [
        Extension(
            f"{'.'.join(room.parts)}.twins",
            sorted(map(str, room.glob("*.c"))),
            # One header is for both.
            depends=[str(header) for each in IN_C for header in sorted(each.glob("*.h"))],
            # Its files call each other, and nobody else calls them by their names.
            extra_compile_args=["-O2", "-g0", "-fvisibility=hidden"],
        )
        for room in IN_C
    ]
    return extensions


if __name__ == "__main__":
    setup(ext_modules=_extensions(), options={"build_ext": {"parallel": os.cpu_count()}})
