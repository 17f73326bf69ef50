"""When the state of a topic may go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.daemon.topics.metadata_cache import Refresh
from holdfast.share.deleted_topics import CleanUp, CleanUpStopped, DeletedTopics
from holdfast.share.settings import DeletedTopicSettings
from tests.pure.daemon.topics.refreshes import OTHER, OURS, refresh

GRACE_MS = 1_000
SETTINGS = DeletedTopicSettings(deleted_topic_grace_ms=GRACE_MS, deleted_topic_max_share=0.5)
A, B, C = bytes([1] * 16), bytes([2] * 16), bytes([3] * 16)
KEYS = {A: 10, B: 10, C: 10}


@pytest.fixture
def topics() -> DeletedTopics:
    topics = DeletedTopics(SETTINGS, OURS)
    topics.observe(refresh(0, [A, B, C]))
    return topics


def test_a_topic_is_deleted_when_its_id_stayed_unknown_for_the_grace(topics: DeletedTopics) -> None:
    topics.observe(refresh(100, [B, C], [A]))
    assert topics.decide(KEYS, 100 + GRACE_MS - 1) is None
    topics.observe(refresh(100 + GRACE_MS, [B, C], [A]))
    assert topics.decide(KEYS, 100 + GRACE_MS) == CleanUp(frozenset([A]), 10)


@pytest.mark.parametrize(
    "between",
    [refresh(600, [A]), refresh(600, unclear=[A]), refresh(600, cluster_id=OTHER), refresh(600, [A], cluster_id=OTHER)],
    ids=["it existed", "no evidence", "another cluster", "another cluster has it"],
)
def test_any_other_answer_begins_the_grace_anew(topics: DeletedTopics, between: Refresh) -> None:
    topics.observe(refresh(100, unknown=[A]))
    topics.observe(between)
    topics.observe(refresh(700, unknown=[A]))
    assert topics.decide(KEYS, 100 + GRACE_MS) is None
    assert topics.decide(KEYS, 700 + GRACE_MS) == CleanUp(frozenset([A]), 10)


@pytest.mark.parametrize(
    ("between", "still_gone"),
    [
        (refresh(2_000, [B], [A]), {A}),
        (refresh(2_000, [B]), {A}),
        (refresh(2_000, [A]), set()),
        (refresh(2_000, unclear=[A]), set()),
        (refresh(2_000, unknown=[A], cluster_id=OTHER), set()),
    ],
    ids=["still unknown", "not asked for", "it exists", "no evidence", "another cluster"],
)
def test_the_rest_of_the_state_may_go_until_a_refresh_says_anything_else(
    topics: DeletedTopics, between: Refresh, still_gone: set[bytes]
) -> None:
    topics.observe(refresh(0, [B], [A]))
    assert topics.still_gone(frozenset([A])) == set()
    topics.decide(KEYS, GRACE_MS)
    topics.observe(between)
    topics.observe(refresh(2_001, unknown=[A]))
    topics.decide(KEYS, 2_001)
    assert topics.still_gone(frozenset([A, B])) == still_gone
    topics.decide({B: 10}, 2_001)
    assert topics.still_gone(frozenset([A])) == set()


def test_a_refresh_that_did_not_query_a_topic_says_nothing_about_it(topics: DeletedTopics) -> None:
    topics.observe(refresh(100, unknown=[A]))
    topics.observe(refresh(600, [B]))
    assert topics.decide(KEYS, 100 + GRACE_MS) == CleanUp(frozenset([A]), 10)


def test_a_topic_that_was_never_seen_was_never_deleted() -> None:
    topics = DeletedTopics(SETTINGS, OURS)
    topics.observe(refresh(0, [A], cluster_id=OTHER))
    topics.observe(refresh(0, unknown=[A]))
    topics.observe(refresh(GRACE_MS, unknown=[A]))
    assert topics.decide(KEYS, 10 * GRACE_MS) is None


def test_too_large_a_share_stops_and_waits_for_an_admin(topics: DeletedTopics) -> None:
    topics.observe(refresh(0, [C], [A, B]))
    stopped = topics.decide(KEYS, GRACE_MS)
    assert isinstance(stopped, CleanUpStopped)
    assert stopped[:3] == (frozenset([A, B]), 20, 30)
    assert stopped.text.startswith("20 of 30 share partitions belong to 2 topics that cluster cluster-a does not know")
    topics.accept(frozenset([B]))
    assert topics.decide(KEYS, GRACE_MS) == CleanUp(frozenset([A, B]), 20), (
        "the one not accepted is a third, which is allowed"
    )


def test_exactly_the_share_is_allowed(topics: DeletedTopics) -> None:
    topics.observe(refresh(0, [B], [A]))
    assert topics.decide({A: 5, B: 5}, GRACE_MS) == CleanUp(frozenset([A]), 5)


def test_a_topic_that_came_back_has_to_be_accepted_again(topics: DeletedTopics) -> None:
    keys = {A: 10}
    topics.observe(refresh(0, unknown=[A]))
    topics.accept(frozenset([A]))
    topics.observe(refresh(10, [A]))
    assert topics.decide(keys, 10) is None
    topics.observe(refresh(20, unknown=[A]))
    assert isinstance(topics.decide(keys, 20 + GRACE_MS), CleanUpStopped)


def test_accepting_what_is_not_missing_accepts_nothing(topics: DeletedTopics) -> None:
    keys = {A: 10}
    topics.accept(frozenset([A]))
    topics.observe(refresh(0, unknown=[A]))
    assert isinstance(topics.decide(keys, GRACE_MS), CleanUpStopped)


def test_a_topic_without_state_is_forgotten(topics: DeletedTopics) -> None:
    topics.observe(refresh(0, unknown=[A]))
    assert topics.decide({B: 1}, GRACE_MS) is None
    assert topics.decide(KEYS, GRACE_MS) is None, "its absence has to be seen again"


answers = st.sampled_from(["existing", "unknown", "unclear", "not asked"])
steps = st.lists(
    st.tuples(st.integers(0, GRACE_MS // 2), st.sampled_from([OURS, OURS, OURS, OTHER]), answers, answers), max_size=40
)


@given(steps, st.integers(0, 2 * GRACE_MS))
def test_the_tracker_agrees_with_the_rule_read_from_the_whole_history(
    history: list[tuple[int, str, str, str]], wait_ms: int
) -> None:
    """The rule, said of a whole history: seen here, and nothing but UNKNOWN_TOPIC_ID in a last run as long as the grace."""
    topics = DeletedTopics(SETTINGS, OURS)
    reports: dict[bytes, list[tuple[int, str]]] = {A: [], B: []}
    now_ms = 0
    for pause_ms, cluster_id, *said in history:
        now_ms += pause_ms
        by_answer: dict[str, list[bytes]] = {"existing": [], "unknown": [], "unclear": [], "not asked": []}
        for topic_id, answer in zip((A, B), said, strict=True):
            by_answer[answer].append(topic_id)
            reports[topic_id].append((now_ms, answer if cluster_id == OURS else "elsewhere"))
        topics.observe(
            refresh(now_ms, by_answer["existing"], by_answer["unknown"], by_answer["unclear"], cluster_id=cluster_id)
        )
    now_ms += wait_ms

    def is_deleted(events: list[tuple[int, str]]) -> bool:
        events = [event for event in events if event[1] != "not asked"]
        sightings = [i for i, (_, answer) in enumerate(events) if answer == "existing"]
        others = [i for i, (_, answer) in enumerate(events) if answer != "unknown"]
        if not sightings or others[-1] == len(events) - 1:
            return False
        return now_ms - events[others[-1] + 1][0] >= GRACE_MS

    decided = topics.decide({A: 1, B: 1, C: 8}, now_ms)
    gone = decided.topic_ids if decided else frozenset()
    assert gone == {topic_id for topic_id, events in reports.items() if is_deleted(events)}
    assert not isinstance(decided, CleanUpStopped), "two of ten keys are less than half"


@given(st.dictionaries(st.integers(0, 255), st.tuples(st.integers(1, 100), st.booleans(), st.booleans()), min_size=1))
def test_more_than_the_share_never_goes_without_an_admin(state: dict[int, tuple[int, bool, bool]]) -> None:
    ids = {number: bytes([number] * 16) for number in state}
    topics = DeletedTopics(SETTINGS, OURS)
    topics.observe(refresh(0, ids.values()))
    gone = frozenset(ids[number] for number, (_, is_gone, _) in state.items() if is_gone)
    topics.observe(refresh(1, unknown=gone))
    accepted = frozenset(ids[number] for number, (_, _, is_accepted) in state.items() if is_accepted)
    topics.accept(accepted)
    counts = {ids[number]: count for number, (count, _, _) in state.items()}
    decided = topics.decide(counts, 1 + GRACE_MS)
    if not gone:
        assert decided is None
        return
    assert decided is not None
    assert decided.topic_ids == gone
    assert decided.key_count == sum(counts[topic_id] for topic_id in gone)
    surprising = sum(counts[topic_id] for topic_id in gone - accepted)
    assert isinstance(decided, CleanUpStopped) == (surprising > sum(counts.values()) / 2)
