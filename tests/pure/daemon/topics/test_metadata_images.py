"""How answers of brokers become the next image of the cluster's topics."""

from __future__ import annotations

import pytest

from holdfast.daemon.topics.metadata_image import MetadataImage, keep_only, merge
from holdfast.kafka.topics.metadata_client import Topic, TopicAnswers

A, B, C = bytes([1] * 16), bytes([2] * 16), bytes([3] * 16)


def answers(existing: dict[bytes, int], *unknown: bytes) -> TopicAnswers:
    topics = tuple(Topic(topic_id, f"topic-{topic_id[0]}", count) for topic_id, count in existing.items())
    return TopicAnswers("cluster", topics, frozenset(unknown))


def image(version: int, topics: dict[bytes, int]) -> MetadataImage:
    return MetadataImage(version, "cluster", topics)


@pytest.mark.parametrize("existing", [{}, {A: 3}])
def test_the_first_answers_make_the_first_image(existing: dict[bytes, int]) -> None:
    assert merge(None, answers(existing, B)) == image(1, existing)


@pytest.mark.parametrize(
    ("told", "topics"),
    [
        (answers({C: 5}), {A: 3, B: 4, C: 5}),
        (answers({A: 9}), {A: 9, B: 4}),
        (answers({}, A), {B: 4}),
        (answers({C: 1}, A, B), {C: 1}),
    ],
    ids=["a new topic", "more partitions", "an unknown id", "all at once"],
)
def test_news_make_the_next_image(told: TopicAnswers, topics: dict[bytes, int]) -> None:
    assert merge(image(7, {A: 3, B: 4}), told) == image(8, topics)


@pytest.mark.parametrize(
    "told", [answers({}), answers({A: 3}), answers({}, C)], ids=["unclear", "as before", "unknown before"]
)
def test_answers_that_say_nothing_new_leave_the_image_as_it_is(told: TopicAnswers) -> None:
    before = image(7, {A: 3, B: 4})
    assert merge(before, told) is before


def test_topics_that_are_not_kept_are_forgotten() -> None:
    before = image(7, {A: 3, B: 4})
    assert keep_only(before, {B, C}) == image(8, {B: 4})
    assert keep_only(before, {A, B, C}) is before
