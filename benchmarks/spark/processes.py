"""What the processes of a measurement cost: Spark's JVM, and Python with its workers."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import cpu_seconds, thread_times

#: Kinds of Java's threads, by how their names begin.
THREADS: Final = {
    "compiler": ("C1 ", "C2 "),
    "collector": ("GC ", "ParGC", "VM Thread", "G1 "),
    "tasks": ("Executor task",),
    "query": ("stream executio", "Thread-", "main"),
}


def cpu_used() -> dict[str, Any]:
    """Return what this process and all below it have taken so far: Spark's JVM by its threads, and Python with its workers."""
    java, python = own_processes()
    threads = dict.fromkeys((*THREADS, "other"), 0.0)
    for thread in thread_times(java):
        kind = next((kind for kind, names in THREADS.items() if thread.name.startswith(names)), "other")
        threads[kind] += thread.cpu_s
    return {
        "java_cpu_s": round(cpu_seconds(java), 1),
        "java_threads_cpu_s": {kind: round(seconds, 1) for kind, seconds in sorted(threads.items())},
        "python_cpu_s": round(cpu_seconds(python), 1),
    }


def own_processes() -> tuple[set[int], set[int]]:
    """Return the process ids of Java, and of this process and all else below it."""
    stats = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            stats[int(stat.parent.name)] = stat.read_text().rsplit(")", 1)
    parents = {process: int(stat[1].split()[1]) for process, stat in stats.items()}
    own = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in own} - own:
        own |= more
    java = {process for process in own if stats[process][0].endswith("(java")}
    return java, own - java
