"""What the load generator sends and expects, against the product's own codec and replay."""

import socketserver
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from benchmarks.client import Address, BenchmarkError, request_frame
from benchmarks.generator import Request, Workload, drive, open_caller
from benchmarks.history import History
from benchmarks.report import mark_table, request_table
from benchmarks.share_state import LEADER_EPOCH, MIXES, STATE_EPOCH, ConnectionKeys, ReleasedState
from holdfast.api.results import ReadResult, StateResponse, WritePartition, WriteResult
from holdfast.api.share_state import READ, WRITE
from holdfast.api.state_requests import decode_request
from holdfast.api.state_responses import encode_response
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.combining import combine
from holdfast.records.share.replay import replay

TOPIC_ID = bytes(range(16))
ADDRESS = Address("127.0.0.1", 1)


def test_a_patched_frame_is_what_the_codec_would_encode() -> None:
    keys = ConnectionKeys(ADDRESS, "group", TOPIC_ID, [3, 70_000])
    request = Request(keys, keys.states, WRITE)
    start = len(request_frame(WRITE, 1, 0, b""))
    for number in range(4):
        request.advance()
        group_id, topics, _ = decode_request(WRITE, 1, bytes(request.frame), start)
        batch = StateBatch(number * 10, number * 10 + 9, 2, 1 + number % 3)
        complete_count = (10, 20, 30, 40)[number]
        partitions = [WritePartition(p, STATE_EPOCH, LEADER_EPOCH, 0, complete_count, (batch,)) for p in (3, 70_000)]
        assert (group_id, topics) == ("group", [(TOPIC_ID, partitions)])


def test_a_patched_frame_of_the_mix_spread_has_two_batches() -> None:
    keys = ConnectionKeys(ADDRESS, "group", TOPIC_ID, [3, 4], "spread")
    request = Request(keys, keys.states, WRITE)
    start = len(request_frame(WRITE, 1, 0, b""))
    for first in (0, 10):
        request.advance()
        _, topics, _ = decode_request(WRITE, 1, bytes(request.frame), start)
        batches = StateBatch(first, first + 9, 2, 2), StateBatch(first + 10, first + 19, 0, 1)
        assert topics == [
            (TOPIC_ID, [WritePartition(p, STATE_EPOCH, LEADER_EPOCH, first, 10, batches) for p in (3, 4)])
        ]


@pytest.mark.parametrize("mix", MIXES)
def test_the_expected_state_is_what_combining_gives(mix: str) -> None:
    state = MIXES[mix](0)
    batches: Sequence[StateBatch] = ()
    start_offset = 0
    assert state.expected_read() == ReadResult(0, None, STATE_EPOCH, start_offset, batches)
    for _ in range(20):
        new_start, complete_count, _, *fields = state.next_write()
        start_offset = max(start_offset, new_start)
        written = tuple(StateBatch(*fields[at : at + 4]) for at in range(0, len(fields), 4))
        assert len(written) == state.batches
        batches = combine(batches, written, start_offset)
        assert state.expected_read() == ReadResult(0, None, STATE_EPOCH, start_offset, batches)
        assert state.expected_summary().delivery_complete_count == complete_count
    assert len(batches) <= 5


def test_writes_of_the_mix_spread_release_and_acknowledge_by_turns() -> None:
    state = ReleasedState(0)
    for _ in range(3):
        state.next_write()
    assert state.expected_read().state_batches == (StateBatch(20, 29, 2, 2), StateBatch(30, 39, 0, 1))


def test_a_history_replays_to_its_final_state() -> None:
    history = History(updates=1_003, keys=1, updates_per_snapshot=500)
    values = list(history.values())
    state = None
    for value in values:
        state = replay(state, value, history.updates_per_snapshot)
    assert state is not None
    expected = history.final_state(0).expected_read()
    assert (state.start_offset, state.state_batches) == (expected.start_offset, expected.state_batches)
    assert len(values) == 1_004


@pytest.mark.parametrize("codes", [(0, 0), (0, 16)])
def test_an_answer_with_an_error_is_not_a_success_and_not_remembered(codes: tuple[int, int]) -> None:
    keys = ConnectionKeys(ADDRESS, "group", TOPIC_ID, [0, 1])
    request = Request(keys, keys.states, WRITE)
    body = encode_response(WRITE, 1, [(TOPIC_ID, [(p, WriteResult(code, None)) for p, code in enumerate(codes)])])
    is_success = codes == (0, 0)
    assert request.judge(b"\x00" + body) is is_success
    assert bool(request.known) is is_success


def test_a_read_of_another_state_ends_the_benchmark() -> None:
    keys = ConnectionKeys(ADDRESS, "group", TOPIC_ID, [0])
    request = Request(keys, keys.states, READ)
    body = encode_response(READ, 0, [(TOPIC_ID, [(0, ReadResult(0, None, STATE_EPOCH, 10, ()))])])
    with pytest.raises(BenchmarkError, match="in place of"):
        request.judge(b"\x00" + body)


@contextmanager
def answering(name: str, asked: list[str]) -> Iterator[Address]:
    """Give a server that answers each Write with success, and says that it was asked."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while length := self.rfile.read(4):
                frame = length + self.rfile.read(int.from_bytes(length, "big"))
                asked.append(name)
                start = len(request_frame(WRITE, 1, 0, b""))
                _, topics, _ = decode_request(WRITE, 1, frame, start)
                results: StateResponse = [
                    (topic_id, [(each.partition, WriteResult(0, None)) for each in partitions])
                    for topic_id, partitions in topics
                ]
                answer = frame[8:12] + b"\x00" + encode_response(WRITE, 1, results)
                self.wfile.write(len(answer).to_bytes(4, "big") + answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True  # else the end waits for those whose caller is still there
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            yield Address("127.0.0.1", server.server_address[1])
        finally:
            server.shutdown()


def test_a_caller_of_several_coordinators_sends_to_them_in_turn_one_request_at_a_time() -> None:
    asked: list[str] = []
    workload = Workload(api="write", keys=1, connections=1)
    with answering("one", asked) as one, answering("other", asked) as other:
        keys = ConnectionKeys(one, "group-1", TOPIC_ID, [1, 2])
        keys.elsewhere = [ConnectionKeys(other, "group-2", TOPIC_ID, [3])]
        first = open_caller(keys, workload)
        latencies: Sequence[int] = ()
        while len(latencies) < 4:  # in one go, however slow the machine is
            asked.clear()
            latencies, _, errors = drive([first], 0.2)
        assert [connection.socket.getpeername() for connection in first.ring()] == [one, other]
        for connection in first.ring():
            connection.socket.close()
    assert errors == 0
    assert asked == [("one", "other")[number % 2] for number in range(len(latencies))]


def test_tables_show_medians_and_say_which_marks_are_reached() -> None:
    def run(who: str, requests_per_s: float, mix: str = "spread") -> dict[str, object]:
        return {
            "contender": who, "api": "write", "keys": 1, "connections": 64, "mix": mix, "requests_per_s": requests_per_s,
            "keys_per_s": requests_per_s, "p50_ms": 1.0, "p99_ms": 2.0, "errors": 0, "generator_cpu": 0.5, "servers_cpu": 1.0,
        }  # fmt: skip

    runs = [
        run("kafka", 100),
        run("holdfast", 60),
        run("kafka", 300),
        run("holdfast", 80),
        run("kafka", 200),
        run("holdfast", 70),
    ]
    assert "| kafka | 200 (100–300) |" in request_table(runs)
    assert "0.35, 1.00" in request_table(runs)
    assert "≥ 1.2 | 0.35 (spread) | no |  |" in mark_table({"rf1": runs})
    runs[:0] = [run("kafka", 100, "steady"), run("holdfast", 80, "steady")]
    assert "≥ 1.2 | 0.35 (spread) | no | 0.80 (steady) |" in mark_table({"rf1": runs})
    rows = [line.split(" | ")[0] for line in request_table(runs).splitlines()[2:]]
    assert rows == [f"| write · 1 · 64 · {mix}" for mix in ("spread", "spread", "steady", "steady")]
