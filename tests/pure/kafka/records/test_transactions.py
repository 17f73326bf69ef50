"""Aborted transactions, against a slow and plain reading of a log."""

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.kafka.records.batches import iter_batches
from holdfast.kafka.records.transactions import AbortedTransaction, mark_aborted
from tests.pure.kafka.records.samples import ABORT, COMMIT, make_batch, make_marker


def aborted_offsets(data: bytes, aborted: list[AbortedTransaction], from_offset: int = 0) -> list[int]:
    batches = iter_batches(memoryview(data), from_offset)
    return [batch.base_offset for batch, is_aborted in mark_aborted(batches, aborted) if is_aborted]


def written_by(offset: int, producer_id: int) -> bytes:
    return make_batch(offset, producer=(producer_id, 0), is_transactional=True)


def test_list_is_sorted_by_where_transactions_end_and_not_by_where_they_begin() -> None:
    log = [
        written_by(0, 1),
        written_by(1, 2),
        make_marker(2, (2, 0), ABORT),
        written_by(3, 1),
        make_marker(4, (1, 0), ABORT),
    ]
    listed = [AbortedTransaction(2, 1), AbortedTransaction(1, 0)]
    assert aborted_offsets(b"".join(log), listed) == [0, 1, 3]
    assert aborted_offsets(b"".join(log), listed[::-1]) == [0, 1, 3]


def test_transaction_that_began_below_the_answer_is_aborted_in_it() -> None:
    log = [written_by(10, 1), make_marker(11, (1, 0), ABORT)]
    assert aborted_offsets(b"".join(log), [AbortedTransaction(1, 2)], 10) == [10]


def test_next_transaction_of_a_producer_counts_after_its_marker() -> None:
    log = [
        written_by(0, 1),
        make_marker(1, (1, 0), ABORT),
        written_by(2, 1),
        make_marker(3, (1, 0), COMMIT),
        written_by(4, 1),
        make_marker(5, (1, 0), ABORT),
    ]
    listed = [AbortedTransaction(1, 0), AbortedTransaction(1, 4)]
    assert aborted_offsets(b"".join(log), listed) == [0, 4]


def test_records_outside_of_transactions_are_never_aborted() -> None:
    log = [written_by(0, 1), make_batch(1, producer=(1, 0)), make_batch(2), make_marker(3, (1, 0), ABORT)]
    assert aborted_offsets(b"".join(log), [AbortedTransaction(1, 0)]) == [0]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["write", "plain", "abort", "commit"])), max_size=25))
def test_marks_agree_with_a_reading_from_the_end(steps: list[tuple[int, str]]) -> None:
    log, listed, began, lost, written = [], [], dict[int, int](), set[int](), dict[int, list[int]]()
    for offset, (producer_id, step) in enumerate(steps):
        if step in ("write", "plain"):
            is_transactional = step == "write"
            log.append(make_batch(offset, producer=(producer_id, 0), is_transactional=is_transactional))
            if is_transactional:
                began.setdefault(producer_id, offset)
                written.setdefault(producer_id, []).append(offset)
        else:
            log.append(make_marker(offset, (producer_id, 0), ABORT if step == "abort" else COMMIT))
            first, offsets = began.pop(producer_id, None), written.pop(producer_id, [])
            if step == "abort" and first is not None:
                listed.append(AbortedTransaction(producer_id, first))
                lost.update(offsets)
    assert aborted_offsets(b"".join(log), listed) == sorted(lost)
    # A fetch may begin anywhere; then the list still has what began below and goes on.
    half = len(log) // 2
    assert aborted_offsets(b"".join(log[half:]), listed_from(listed, log, half), half) == sorted(
        offset for offset in lost if offset >= half
    )


def listed_from(listed: list[AbortedTransaction], log: list[bytes], from_offset: int) -> list[AbortedTransaction]:
    """Return what a broker lists for a fetch: transactions whose marker lies at or above its offset."""
    found = []
    for each in listed:
        batches = list(iter_batches(memoryview(b"".join(log[each.first_offset :])), each.first_offset))
        end = next(batch.base_offset for batch in batches if batch.is_control and batch.producer_id == each.producer_id)
        if end >= from_offset:
            found.append(each)
    return found
