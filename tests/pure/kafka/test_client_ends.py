"""What describes a topic lets go of its client."""

import gc
import weakref
from concurrent.futures import Future
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from holdfast.kafka.librdkafka import find_topic


class UnknownTopics:
    def describe_topics(self, topics: object, request_timeout: float) -> dict[str, Future[Any]]:
        future: Future[Any] = Future()
        future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return {"orders": future}


def test_a_client_that_found_no_topic_is_gone_when_its_user_is() -> None:
    admin = UnknownTopics()
    alive = weakref.ref(admin)
    gc.disable()  # it may come late, and until then the client of librdkafka has its threads
    try:
        assert find_topic(cast("AdminClient", admin), "orders", 1_000) is None
        del admin
        assert alive() is None
    finally:
        gc.enable()
