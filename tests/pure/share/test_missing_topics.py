"""Since when a cluster has not known a topic, and when it is gone."""

import pytest

from holdfast.share.missing_topics import MissingTopics
from tests.pure.daemon.topics.refreshes import OTHER, OURS, refresh

GRACE_MS = 1_000
A, B = bytes([1] * 16), bytes([2] * 16)


def test_a_topic_is_gone_when_it_was_missing_for_the_grace() -> None:
    topics = MissingTopics(OURS, GRACE_MS)
    assert not topics.is_gone(A, 10 * GRACE_MS), "no refresh has said anything"
    for at_ms in (100, 700):
        topics.observe(refresh(at_ms, unknown=[A]), {A})
    assert not topics.is_gone(A, 100 + GRACE_MS - 1)
    assert topics.is_gone(A, 100 + GRACE_MS)
    assert not topics.is_gone(B, 100 + GRACE_MS)


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize(
    ("between", "since_ms"),
    [
        ({"unknown": [A]}, 100),
        ({"existing": [B]}, 100),
        ({"existing": [A]}, 900),
        ({"unclear": [A]}, 900),
        ({"unknown": [A], "cluster_id": OTHER}, 900),
        ({"cluster_id": OTHER}, 900),
    ],
    ids=["still unknown", "not requested", "it exists", "no evidence", "another cluster", "another cluster, of others"],
)
def test_absence_ends_with_an_answer_or_with_another_cluster(
    between: dict[str, object], since_ms: int, *, is_full: bool
) -> None:
    topics = MissingTopics(OURS, GRACE_MS)
    topics.observe(refresh(100, unknown=[A]), {A})
    topics.observe(refresh(500, is_full=is_full, **between), {A})  # type: ignore[arg-type]
    assert (A in topics.topic_ids) is (since_ms == 100)
    topics.observe(refresh(900, unknown=[A]), {A})
    assert not topics.is_gone(A, since_ms + GRACE_MS - 1)
    assert topics.is_gone(A, since_ms + GRACE_MS)


def test_a_refresh_counts_only_if_it_is_of_this_cluster() -> None:
    topics = MissingTopics(OURS, GRACE_MS)
    assert topics.observe(refresh(100, unknown=[A]), {A})
    assert not topics.observe(refresh(200, unknown=[A], cluster_id=OTHER), {A})
    assert not topics.topic_ids


def test_absence_begins_of_watched_topics_and_goes_on_without_that() -> None:
    topics = MissingTopics(OURS, GRACE_MS)
    topics.observe(refresh(100, unknown=[A, B]), {A})
    topics.observe(refresh(200, unknown=[A, B]), set())
    assert topics.topic_ids == {A}
    assert topics.is_gone(A, 100 + GRACE_MS)


def test_a_forgotten_topic_must_be_missing_again() -> None:
    topics = MissingTopics(OURS, GRACE_MS)
    topics.observe(refresh(100, unknown=[A, B]), {A, B})
    topics.keep_only({B: 1})
    assert topics.topic_ids == {B}
    topics.observe(refresh(700, unknown=[A, B]), {A, B})
    assert not topics.is_gone(A, 100 + GRACE_MS)
    assert topics.is_gone(A, 700 + GRACE_MS)
