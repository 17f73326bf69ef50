"""A topic that was just created is looked at until brokers know it, and no longer than that, or than its time."""

from __future__ import annotations

import pytest

from holdfast.daemon.topics.state_topic import NotKnownYet, StateTopicError, TopicMissing, until_known
from holdfast.kafka.errors import ConnectionFailed
from tests.waiting import PATIENCE_MS


class Looks:
    """Raises one error after the other, and then returns its argument."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.count = 0

    def look(self, value: str) -> str:
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return value


def test_it_is_looked_at_until_it_is_known() -> None:
    looks = Looks(TopicMissing("not here"), NotKnownYet("not there"), ConnectionFailed("no answer"))
    assert until_known(PATIENCE_MS, looks.look, "known") == "known"
    assert looks.count == 4


def test_what_is_wrong_with_it_is_no_reason_to_look_again() -> None:
    looks = Looks(StateTopicError("it would lose state"))
    with pytest.raises(StateTopicError, match="it would lose state"):
        until_known(PATIENCE_MS, looks.look, "known")
    assert looks.count == 1


def test_when_the_time_is_over_the_last_error_is_raised() -> None:
    with pytest.raises(TopicMissing, match="not here"):
        until_known(0, Looks(TopicMissing("not here"), TopicMissing("nor later")).look, "known")
