"""The machine that the doctor runs on: Python, libraries, Java, memory and open files."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from holdfast.console.doctor.findings import Finding, Subject, right, warning, wrong
from holdfast.console.show.tables import rounded
from holdfast.daemon.settings.declarations import MIB
from holdfast.daemon.settings.models import Settings
from holdfast.distribution import NAME, VERSION
from holdfast.jars.errors import JarsUnavailable
from holdfast.jars.java import find_java, find_spark_java
from holdfast.runtime.build import BUILD
from holdfast.share.service import CACHED_KEYS_MAX
from holdfast.share.settings import ShareSettings

#: Libraries whose versions matter when something is reported.
_LIBRARIES: Final = ("confluent-kafka", "aiokafka", "kio", "fastavro", "pydantic", "uvloop")
#: Bytes of memory that a node may need for each byte of state.
_MEMORY_PER_STATE_BYTE: Final = 10
#: Memory of a node that has neither clients nor state.
_IDLE_BYTES: Final = 128 * MIB
_BYTES_PER_CONNECTION: Final = MIB // 2
_BYTES_PER_CACHED_KEY: Final = 1_024
#: Open files other than those of client connections: brokers, log, sockets that listen, libraries.
_OTHER_FILES: Final = 200
#: Files with the memory limit of a container or a service, newest form first.
_MEMORY_LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


async def check_versions(_: Subject) -> Sequence[Finding]:
    """Look at what is installed here."""
    installed: dict[str, str | None] = {}
    for name in _LIBRARIES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed[name] = None
    return judge_versions(sys.version.split()[0], installed)


def judge_versions(python: str, installed: dict[str, str | None]) -> Sequence[Finding]:
    """Judge the versions of libraries, by their names; None: it is not installed."""
    missing = sorted(name for name, version in installed.items() if version is None)
    if missing:
        return [wrong(f"not installed: {', '.join(missing)}", f"pip install --force-reinstall the wheel of {NAME}")]
    libraries = ", ".join(f"{name} {version}" for name, version in installed.items())
    return [right(f"Holdfast {VERSION} ({BUILD}), Python {python}, {libraries}")]


async def check_java(subject: Subject) -> Sequence[Finding]:
    """Look for the Java of the compaction job and the trial Kafka."""
    try:
        return judge_java(await asyncio.to_thread(find_spark_java), "", is_needed=False)
    except JarsUnavailable as error:
        problem = str(error)
    try:
        of_kafka = await asyncio.to_thread(find_java)
    except JarsUnavailable:
        of_kafka = ""
    return judge_java(of_kafka, problem, is_needed=subject.settings.compaction.run)


def judge_java(path: str, problem: str, *, is_needed: bool) -> Sequence[Finding]:
    """Judge what was found of Java.

    Args:
        path: of one on which the trial Kafka runs; empty: there is none.
        problem: why the compaction job does not run on it; empty: it does.
        is_needed: whether this node runs the job.
    """
    what, _, fix = problem.removesuffix(".").partition("; ")
    if not problem:
        return [right(path)]
    if is_needed:
        return [wrong(what, fix)]
    if path:
        return [right(f"{path}, for `holdfast dev` alone: {what[0].lower()}{what[1:]}")]
    return [right("none that fits, and this node needs none: only the compaction job and `holdfast dev` do")]


async def check_memory(subject: Subject) -> Sequence[Finding]:
    """Compare the memory that there is with what the settings allow the node to take."""
    return judge_memory(subject.settings, _read_memory_bytes())


def judge_memory(settings: Settings, memory_bytes: int) -> Sequence[Finding]:
    """Judge the memory of this machine, or of the container that the doctor is in, by the bounds of the settings."""
    limits, workers = settings.limits, settings.host.workers
    clients = (
        limits.buffered_bytes_max
        + limits.requests_in_flight_bytes_max
        + limits.unsent_bytes_max
        + limits.connections_max * _BYTES_PER_CONNECTION
        + CACHED_KEYS_MAX * _BYTES_PER_CACHED_KEY
        + 4 * max(limits.frame_size_bytes_max, limits.answer_size_bytes_max)
    )
    state = _MEMORY_PER_STATE_BYTE * settings.of(ShareSettings).state_bytes_max
    snapshots = settings.snapshots.read_bytes_max if settings.snapshots.topic else 0
    needed = workers * (_IDLE_BYTES + clients + state + snapshots)
    what = f"{_gib(memory_bytes)} here, and {_gib(needed)} at the bounds of the settings"
    if workers > 1:
        what += f" for {workers} workers"
    if needed <= memory_bytes:
        return [right(what)]
    least = workers * (_IDLE_BYTES + clients + snapshots)
    if least > memory_bytes:
        return [warning(what, "lower buffered_bytes_max, requests_in_flight_bytes_max and unsent_bytes_max")]
    fitting = (memory_bytes - least) // workers // _MEMORY_PER_STATE_BYTE
    return [warning(what, f"lower state_bytes_max to {max(MIB, fitting)}, or give the node more memory")]


async def check_files(subject: Subject) -> Sequence[Finding]:
    """Compare how many files may be open here with how many connections the settings allow."""
    return judge_files(subject.settings, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def judge_files(settings: Settings, files_max: int) -> Sequence[Finding]:
    """Judge the limit of open files of a process, which is -1 where there is none."""
    connections = settings.limits.connections_max
    needed = connections + _OTHER_FILES
    if files_max in (-1, resource.RLIM_INFINITY) or files_max >= needed:
        return [right(f"{'any number' if files_max < 0 else files_max} may be open, {needed} are needed")]
    remedy = f"ulimit -n {needed}, or LimitNOFILE={needed} in the unit; or set max.connections to {max(1, files_max - _OTHER_FILES)}"
    return [wrong(f"{files_max} may be open here, and {connections} connections need {needed}", remedy)]


def _read_memory_bytes() -> int:
    """Return the memory of this machine, or less where a container or a service may have less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _MEMORY_LIMITS:
        try:
            text = path.read_text(encoding="ascii").strip()
        except OSError:
            continue
        return min(total, int(text)) if text.isdecimal() else total
    return total


def _gib(size_bytes: int) -> str:
    return f"{rounded(size_bytes / (1024 * MIB))} GiB"
