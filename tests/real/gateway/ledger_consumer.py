"""A process with a stock share consumer, which writes down each record that it gets and each answer to what it says of them.

It ends by itself: in good order, with records that it says nothing of, or in the middle of everything, as an application dies.
The journal has one line per event, JSON. Its times are those of `time.monotonic`, which all processes of a machine share.

Example: python -m tests.real.gateway.ledger_consumer 127.0.0.1:9492 GROUP TOPIC journal SEED
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from typing import Any, Final

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer, TopicPartition

#: Records whose number leaves this rest are given back, as long as they may come again.
_RELEASED_REST: Final = 7
_REJECTED_REST: Final = 8
#: A record is told by the last digit of its number.
_RULES: Final = 10
#: Well below the group's limit of deliveries, so that none is given up for that alone.
_RELEASES_MAX: Final = 3


def verdict(number: int, delivery_count: int) -> AcknowledgeType:
    """Return what is said of a record."""
    if number % _RULES == _REJECTED_REST:
        return AcknowledgeType.REJECT
    if number % _RULES == _RELEASED_REST and delivery_count < _RELEASES_MAX:
        return AcknowledgeType.RELEASE
    return AcknowledgeType.ACCEPT


class LedgerConsumer:
    """A consumer with its journal."""

    def __init__(self, address: str, group: str, topic: str, journal: str, seed: int) -> None:
        self._chance = random.Random(seed)
        self._journal = open(journal, "a", buffering=1)  # noqa: SIM115  # closed by the end of the process
        self._is_stopping = False
        signal.signal(signal.SIGTERM, self._stop)
        settings = {"bootstrap.servers": address, "group.id": group, "share.acknowledgement.mode": "explicit"}
        self._consumer = ShareConsumer(settings | {"log_level": 0, "client.id": f"ledger-{seed}"})
        self._consumer.set_acknowledgement_commit_callback(self._on_answer)
        self._consumer.subscribe([topic])
        self._note("began", seed=seed)

    def _note(self, event: str, **fields: Any) -> None:
        self._journal.write(json.dumps({"t": time.monotonic(), "e": event} | fields) + "\n")

    def _stop(self, *_: object) -> None:
        self._is_stopping = True

    def _on_answer(self, offsets: dict[TopicPartition, set[int]], failure: KafkaException | None) -> None:
        code = 0 if failure is None else failure.args[0].code()
        for place, of_place in offsets.items():
            self._note("answered", p=place.partition, o=sorted(of_place), code=code)

    def run(self) -> None:
        """Take records until the end comes, of itself or from outside."""
        chance = self._chance
        while not self._is_stopping:
            began = time.monotonic()
            messages = list(self._consumer.poll(0.5))
            self._note("given", began=began, r=[self._describe(each) for each in messages if each.error() is None])
            for each in messages:
                if (error := each.error()) is not None:
                    self._note("error", code=error.code(), text=error.str())
            if messages and chance.random() < 0.004:
                self._note("died")
                os.kill(os.getpid(), signal.SIGKILL)
            if messages and chance.random() < 0.004:
                self._note("left")
                break
            verdicts = [(each, self._verdict(each)) for each in messages if each.error() is None]
            # Before it says so to anybody: it may end at any time.
            if verdicts:
                self._note("asked", a=[(each.partition(), each.offset(), int(kind)) for each, kind in verdicts])
            for each, kind in verdicts:
                self._consumer.acknowledge(each, kind)
            if chance.random() < 0.7:
                self._commit()
            else:
                self._consumer.commit_async()
            if chance.random() < 0.1:
                time.sleep(chance.random() * 0.2)
        self._note("closing")
        self._consumer.close()
        self._note("closed")

    def _describe(self, message: Message) -> tuple[int | None, int | None, int | None, int]:
        return message.partition(), message.offset(), message.delivery_count(), int(message.value() or b"-1")

    @staticmethod
    def _verdict(message: Message) -> AcknowledgeType:
        return verdict(int(message.value() or b"-1"), message.delivery_count() or 0)

    def _commit(self) -> None:
        try:
            self._consumer.commit_sync(5.0)
        except KafkaException as failure:
            self._note("commit", code=failure.args[0].code(), text=failure.args[0].str())


if __name__ == "__main__":
    _, its_address, its_group, its_topic, its_journal, its_seed = sys.argv
    LedgerConsumer(its_address, its_group, its_topic, its_journal, int(its_seed)).run()
