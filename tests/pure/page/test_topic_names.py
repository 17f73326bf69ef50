"""The names of topics while brokers are silent, and after the topic was deleted."""

from __future__ import annotations

from holdfast.kafka.topics.topic_ends import NO_SUCH_ID, Ends, TopicEnds
from holdfast.page.topic_names import TopicNames

ID = bytes(15) + b"\1"


def test_a_name_is_kept_while_brokers_are_silent_as_long_as_its_topic() -> None:
    names = TopicNames()
    assert names.find(ID) is None
    names.take({ID: TopicEnds("orders", {0: Ends(0, 5)})})
    names.take({ID: TopicEnds(None, {0: Ends(-1, -1, "Kafka cannot be reached")})})
    assert names.find(ID) == "orders"
    names.take({ID: TopicEnds(None, {0: Ends(-1, -1, NO_SUCH_ID)})})
    assert names.find(ID) is None
