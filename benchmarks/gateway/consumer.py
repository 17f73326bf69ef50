"""One stock share consumer as a process of its own: `python -m benchmarks.gateway.consumer` with its order as JSON.

It says `ready`, begins when it hears a line, says `first` when it has records, and ends with what it saw when its input ends.
All times are of the system's monotonic clock, which all processes share.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from struct import Struct
from typing import Any, Final

from confluent_kafka import ShareConsumer

_POLL_S: Final = 0.2
#: A record at the tail begins with the time when it was produced.
STAMP: Final = Struct(">d")


def main(order: dict[str, Any]) -> list[dict[str, Any]]:
    """Take records until the input ends, at a rate if there is one; returns what was seen."""
    consumer = ShareConsumer({"group.id": order["group"], "log_level": 0} | order["settings"])
    is_explicit = order["settings"].get("share.acknowledgement.mode") == "explicit"
    is_stamped, clock = bool(order["is_stamped"]), time.monotonic
    rate, taken = order["rate"], 0
    stopped = threading.Event()
    print("ready", flush=True)
    sys.stdin.readline()
    threading.Thread(target=_wait_for_end, args=(stopped,), daemon=True).start()
    began_s, busy_s = clock(), time.process_time()
    consumer.subscribe([order["topic"]])
    polls: list[tuple[float, int]] = []
    latencies_ms: list[float] = []
    problems: list[str] = []
    while not stopped.is_set():
        messages = consumer.poll(_POLL_S)
        if not messages:
            continue
        now_s = clock()
        problems += [str(message.error()) for message in messages if message.error() is not None]
        if not polls:
            print("first", flush=True)
        polls.append((now_s, len(messages)))
        if is_stamped:
            latencies_ms += [(now_s - STAMP.unpack_from(message.value() or b"")[0]) * 1_000 for message in messages]
        taken += len(messages)
        if rate:
            time.sleep(max(0.0, polls[0][0] + taken / rate - clock()))
        if is_explicit:
            for message in messages:
                consumer.acknowledge(message)
            problems += [str(problem) for problem in consumer.commit_sync().values() if problem is not None]
    seen = {
        "began_s": began_s,
        "cpu_s": time.process_time() - busy_s,
        "polls": polls,
        "latencies_ms": latencies_ms,
        "problems": problems,
    }
    consumer.close()
    return [seen]


def _wait_for_end(stopped: threading.Event) -> None:
    sys.stdin.readline()
    stopped.set()


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))), flush=True)
