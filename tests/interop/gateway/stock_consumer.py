"""A stock confluent-kafka ShareConsumer that does what it is told, as StockConsumer.java does; needs nothing but that package.

It runs with releases that this environment does not have, so it is a program and nobody imports it.
"""

from __future__ import annotations

import logging
import sys

from confluent_kafka import AcknowledgeType, Message, ShareConsumer


class StockConsumer:
    """One consumer, and the records that it was given."""

    def __init__(self, settings: dict[str, str]) -> None:
        logging.basicConfig(format="%(asctime)s %(message)s", level=logging.DEBUG)
        self._consumer = ShareConsumer(settings, logger=logging.getLogger())
        self._given: dict[str, Message] = {}

    def answer(self, step: str, *rest: str) -> list[str]:
        """Do a step and return the parts of its answer."""
        if step == "subscribe":
            self._consumer.subscribe(list(rest))
        elif step == "poll":
            return self._poll(int(rest[0]) / 1_000)
        elif step == "acknowledge":
            for place in rest[1:]:
                self._consumer.acknowledge(self._given[place], AcknowledgeType[rest[0]])
        elif step == "commit":
            outcomes = self._consumer.commit_sync()
            return [f"{place.partition}:{error.args[0].name() if error else ''}" for place, error in outcomes.items()]
        elif step == "close":
            self._consumer.close()
        else:
            raise ValueError(step)
        return []

    def _poll(self, timeout_s: float) -> list[str]:
        given = []
        for message in self._consumer.poll(timeout_s):
            error = message.error()
            if error is not None:
                raise RuntimeError(str(error))
            place = f"{message.partition()}:{message.offset()}"
            self._given[place] = message
            given.append(f"{place}:{message.delivery_count()}:{(message.value() or b'').decode()}")
        return given


def main() -> None:
    """Answer each line of standard input."""
    consumer = StockConsumer(dict(part.split("=", 1) for part in sys.argv[1:]))
    for line in sys.stdin:
        try:
            answer = ["ok", *consumer.answer(*line.rstrip("\n").split("\t"))]
        except Exception as problem:  # the test tells of it
            answer = ["error", type(problem).__name__, " ".join(str(problem).split())]
        print("\t".join(answer), flush=True)


if __name__ == "__main__":
    main()
