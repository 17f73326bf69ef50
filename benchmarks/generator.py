"""The load generator: a closed loop over raw sockets, one request of each caller in flight.

A caller has one connection, or one to each of several coordinators, over which it sends in turn.
It shares the machine with the servers, so it must cost little: request frames are encoded once and patched in place,
and an answer is compared with bytes that were once parsed and found right; only unknown bytes are parsed. The CPU time
it takes is part of every result.
"""

import gc
import select
import ssl
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from benchmarks.client import BenchmarkError, open_socket, request_frame
from benchmarks.share_state import LEADER_EPOCH, STATE_EPOCH, ConnectionKeys, WrittenState
from holdfast.api.results import PartitionRequest, ReadPartition, WritePartition
from holdfast.api.share_state import READ, VERSIONS, WRITE
from holdfast.api.state_requests import encode_request
from holdfast.api.state_responses import decode_response
from holdfast.records.share.batches import StateBatch

#: Answers that were parsed and found right, per request; Kafka may order the partitions of an answer in several ways.
_KNOWN_ANSWERS_MAX: Final = 1_000
_ERRORS_MAX: Final = 1_000
_DRAIN_TIMEOUT_S: Final = 30.0
_RECEIVE_SIZE: Final = 256 * 1024
_CORRELATION_ID = Struct(">i")
#: What is patched of one partition in a Write, by the number of its batches; each ends with tags, of which there are none.
_PATCHES: Final = {batches: Struct(">qiB" + batches * "qqbhx") for batches in (1, 2)}
#: Bytes of one partition that precede the part that is patched; its own tags follow it.
_PATCH_OFFSET: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is asked, and by how many callers: most have one connection."""

    api: str  #: "write" or "read"
    keys: int  #: share partitions in one request
    connections: int
    mix: str = "steady"  #: of `share_state.MIXES`

    @property
    def name(self) -> str:
        """Say it in short."""
        keys = f"{self.keys} {'key' if self.keys == 1 else 'keys'}"
        return f"{self.api} · {keys} · {self.connections} conn · {self.mix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one run of one workload gave; an answer with an error is not among the requests."""

    requests: int
    errors: int
    seconds: float
    requests_per_s: float
    keys_per_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    generator_cpu: float  #: share of one core


class Request:
    """One request frame that is sent again and again, and the answers to it that are known to be right."""

    def __init__(self, keys: ConnectionKeys, states: Sequence[WrittenState], api_key: int) -> None:
        self.version = VERSIONS[api_key][1]
        self._api_key = api_key
        self._states = tuple(states)
        self._is_write = api_key == WRITE
        body = encode_request(api_key, self.version, keys.request([self._first(state) for state in states]))
        self.frame = bytearray(request_frame(api_key, self.version, 0, body))
        patch = _PATCHES[self._states[0].batches]
        self._pack = patch.pack_into
        size = _PATCH_OFFSET + patch.size + 1
        first = len(self.frame) - 2 - len(self._states) * size + _PATCH_OFFSET
        self._patched = tuple((state.next_write, first + i * size) for i, state in enumerate(self._states))
        #: body of an answer → the four length bytes in front of it.
        self.known: dict[bytes, bytes] = {}

    def _first(self, state: WrittenState) -> PartitionRequest:
        if self._is_write:
            batches = (StateBatch(0, 0, 0, 0),) * state.batches
            return WritePartition(state.partition, STATE_EPOCH, LEADER_EPOCH, -1, -1, batches)
        return ReadPartition(state.partition, LEADER_EPOCH)

    def advance(self) -> None:
        """Turn the frame into the next request; a read is always the same."""
        if self._is_write:
            for next_write, offset in self._patched:
                self._pack(self.frame, offset, *next_write())

    def judge(self, payload: bytes) -> bool:
        """Parse an answer behind its correlation id and remember it if it is right; returns False if it says an error.

        Raises:
            BenchmarkError: it answers something else than was asked, or holds another state.
        """
        response = decode_response(self._api_key, self.version, payload[1:])
        results = [entry for _, partitions in response for entry in partitions]
        if sorted(partition for partition, _ in results) != sorted(state.partition for state in self._states):
            raise BenchmarkError(f"A response has the partitions {[partition for partition, _ in results]}.")
        if any(result.error_code for _, result in results):
            return False
        expected = {state.partition: state.expected_read() for state in self._states}
        if not self._is_write and any(result != expected[partition] for partition, result in results):
            raise BenchmarkError(f"A read gave {results} in place of {expected}.")
        if len(self.known) < _KNOWN_ANSWERS_MAX:
            self.known[payload] = (len(payload) + 4).to_bytes(4, "big")
        return True


class Connection:
    """A connection with its requests, which it sends in turn."""

    def __init__(self, keys: ConnectionKeys, workload: Workload) -> None:
        api_key = {"write": WRITE, "read": READ}[workload.api]
        size = workload.keys
        self._requests = [Request(keys, keys.states[i : i + size], api_key) for i in range(0, len(keys.states), size)]
        self._turn = 0
        self.request = self._requests[-1]
        self.socket = open_socket(keys.address, _DRAIN_TIMEOUT_S)
        self.socket.setblocking(False)
        is_tls = isinstance(self.socket, ssl.SSLSocket)
        self.receive: Callable[[int], bytes | None] = self._receive_tls if is_tls else self.socket.recv
        self._correlation_id = 0
        self.correlation = b""
        self.buffer = b""
        self.sent_ns = 0
        #: The connection over which its caller sends behind an answer on this one.
        self.successor = self

    def ring(self) -> Iterator["Connection"]:
        """Give all connections of its caller, this one first."""
        connection = self
        while True:
            yield connection
            connection = connection.successor
            if connection is self:
                return

    def _receive_tls(self, size: int) -> bytes | None:
        """Return what is there; None: a part of a record of TLS, or one that holds no data."""
        try:
            return self.socket.recv(size)
        except ssl.SSLWantReadError:
            return None

    def send_next(self) -> None:
        """Send the next request."""
        self.request = self._requests[self._turn]
        self._turn = (self._turn + 1) % len(self._requests)
        self.request.advance()
        self.send()

    def send(self) -> None:
        """Send the request once more, under a new correlation id."""
        self._correlation_id += 1
        self.correlation = _CORRELATION_ID.pack(self._correlation_id)
        frame = self.request.frame
        frame[8:12] = self.correlation
        self.sent_ns = time.perf_counter_ns()
        if self.socket.send(frame) != len(frame):
            raise BenchmarkError("The kernel took only a part of a request; the server does not read.")

    def judge(self, data: bytes) -> bool | None:
        """Look at bytes that are not a known answer; returns whether an answer says success, None if it is not whole.

        Raises:
            BenchmarkError: the connection ended, or the answer is not one to our request.
        """
        if not data:
            raise BenchmarkError("A server closed a connection.")
        self.buffer += data
        if len(self.buffer) < 4 or len(self.buffer) < 4 + int.from_bytes(self.buffer[:4], "big"):
            return None
        answer, self.buffer = self.buffer, b""
        if len(answer) != 4 + int.from_bytes(answer[:4], "big") or answer[4:8] != self.correlation:
            raise BenchmarkError(f"A response begins with {answer[:8].hex()} in place of {self.correlation.hex()}.")
        return self.request.judge(answer[8:])


def measure(all_keys: Sequence[ConnectionKeys], workload: Workload, seconds: float, warm_up_s: float) -> Measurement:
    """Run one workload over the first connections' share partitions.

    Raises:
        BenchmarkError: a wrong answer, or more errors than are bearable.
    """
    connections = [open_caller(keys, workload) for keys in all_keys[: workload.connections]]
    try:
        if warm_up_s:
            drive(connections, warm_up_s)
        gc.collect()
        gc.disable()
        cpu_before, before = time.process_time(), time.perf_counter()
        latencies, _, errors = drive(connections, seconds)
        elapsed = time.perf_counter() - before
        cpu = time.process_time() - cpu_before
    finally:
        gc.enable()
        for connection in connections:
            for each in connection.ring():
                each.socket.close()
    if not latencies:
        raise BenchmarkError(f"Not one request of {workload.name} was answered.")
    ordered = sorted(latencies)
    return Measurement(
        requests=len(ordered),
        errors=errors,
        seconds=elapsed,
        requests_per_s=len(ordered) / elapsed,
        keys_per_s=len(ordered) * workload.keys / elapsed,
        p50_ms=ordered[len(ordered) // 2] / 1e6,
        p99_ms=ordered[len(ordered) * 99 // 100] / 1e6,
        max_ms=ordered[-1] / 1e6,
        generator_cpu=cpu / elapsed,
    )


def open_caller(keys: ConnectionKeys, workload: Workload) -> Connection:
    """Connect a caller to the coordinators of its share partitions; returns the connection that it begins with."""
    first = last = Connection(keys, workload)
    for others in keys.elsewhere:
        last.successor = Connection(others, workload)
        last = last.successor
    last.successor = first
    return first


def drive(connections: Sequence[Connection], seconds: float) -> tuple["array[int]", "array[int]", int]:
    """Keep one request of each caller in flight, whose first connections these are.

    Returns: of those that succeeded latencies and when they were sent (by `time.perf_counter_ns`), in ns; and the number of errors.

    Raises:
        BenchmarkError: a wrong answer, or more errors than are bearable.
    """
    latencies: array[int] = array("q")
    sent: array[int] = array("q")
    keep, keep_sent, clock = latencies.append, sent.append, time.perf_counter_ns
    by_descriptor = {each.socket.fileno(): each for connection in connections for each in connection.ring()}
    errors, in_flight = 0, len(connections)
    with select.epoll() as poller:
        for descriptor in by_descriptor:
            poller.register(descriptor, select.EPOLLIN)
        end_ns = clock() + int(seconds * 1e9)
        give_up_ns = end_ns + int(_DRAIN_TIMEOUT_S * 1e9)
        for connection in connections:
            connection.send_next()
        while in_flight:
            for descriptor, _ in poller.poll(1):
                connection = by_descriptor[descriptor]
                data = connection.receive(_RECEIVE_SIZE)
                if data is None:
                    continue
                now_ns = clock()
                if connection.request.known.get(data[8:]) != data[:4] or data[4:8] != connection.correlation:
                    is_success = connection.judge(data)
                    if is_success is None:
                        continue
                    if not is_success:
                        errors += 1
                        if errors > _ERRORS_MAX:
                            raise BenchmarkError(f"There were more than {_ERRORS_MAX} errors.")
                        connection.send()
                        continue
                keep(now_ns - connection.sent_ns)
                keep_sent(connection.sent_ns)
                if now_ns < end_ns:
                    connection.successor.send_next()
                else:
                    in_flight -= 1
            if clock() > give_up_ns:
                raise BenchmarkError(f"{in_flight} requests were not answered within {_DRAIN_TIMEOUT_S:.0f} s.")
    return latencies, sent, errors
