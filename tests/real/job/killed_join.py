"""A job as a process that ends itself by SIGKILL before a step of a join: `python -m tests.real.job.killed_join JSON`."""

import json
import os
import signal
import sys
from dataclasses import asdict
from typing import Any, NamedTuple

from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.group import topics_of
from holdfast.compaction.job import run
from holdfast.compaction.spark.files import Directory
from holdfast.history import schema


class Step(NamedTuple):
    """A call of a `Directory` that a join makes."""

    call: str
    #: How its first argument begins.
    begin: str
    #: Such calls before it.
    calls: int


#: All changes that a join makes, in their order, and that it lets survive a power cut.
STEPS = (
    Step("sync", schema.JOINING, 0),
    Step("write_text", schema.JOINING, 0),
    Step("move", schema.JOINING, 0),
    Step("sync", schema.DAY, 0),
    Step("remove", schema.DAY, 0),
    Step("remove", schema.DAY, 1),
    Step("remove", schema.JOINING, 0),
)


def command(config: CompactionConfig, step: Step) -> list[str]:
    """Return the command that runs the job to the end of the log, or up to the step."""
    return [sys.executable, "-m", "tests.real.job.killed_join", json.dumps({"config": asdict(config), "step": step})]


def _main(config: dict[str, Any], step: tuple[str, str, int]) -> None:
    call, begin, calls = step
    whole, left = getattr(Directory, call), calls

    def dying(directory: Directory, name: str, *more: str) -> object:
        nonlocal left
        if name.startswith(begin):
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
        return whole(directory, name, *more)

    setattr(Directory, call, dying)
    run(CompactionConfig(**config), topics_of(CompactionConfig(**config)), once=True)


if __name__ == "__main__":
    _main(**json.loads(sys.argv[1]))
