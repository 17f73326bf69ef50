"""Requests to brokers: those that kio writes and whose answers it reads, the one way to try several brokers, and links to brokers."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import closing
from datetime import timedelta
from io import BytesIO
from typing import Any, Final, TypeVar

from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.protocol import Entity, Payload, RequestPayload

from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import Address, ConnectionOptions
from holdfast.kafka.discovery.calls import CallLimits, Sender
from holdfast.kafka.discovery.links import Links
from holdfast.kafka.errors import ConnectionFailed, UnreadableAnswer, all_failed
from holdfast.kafka.protocol.lengths import check_lengths
from holdfast.kafka.protocol.unknown_tags import cut_unknown_tags
from holdfast.metrics.instruments import Counter

R = TypeVar("R", bound=Payload)
T = TypeVar("T")

#: How long one broker may be silent before another is tried as well.
PATIENCE_S: Final = 0.5


async def exchange(connection: BrokerConnection, request: RequestPayload, response_type: type[R]) -> R:
    """Send one of kio's requests and return its answer.

    Tagged fields that its schema does not know are skipped.

    Raises:
        UnreadableAnswer: the answer is not what its schema says.
        ConnectionFailed: no answer in time, or the broker does not know this version.
    """
    body = await connection.exchange(
        request.__api_key__, request.__version__, to_bytes(request), is_flexible=request.__flexible__
    )
    return from_bytes(response_type, body)


def to_bytes(request: Entity) -> bytes:
    """Return the body of a request."""
    buffer = BytesIO()
    entity_writer(type(request))(buffer, request)
    return buffer.getvalue()


def to_ms(time: timedelta) -> int:
    """Return a time of one of kio's answers in whole ms."""
    return int(time.total_seconds() * 1_000)


def from_bytes(response_type: type[R], body: bytes) -> R:
    """Return the answer whose body this is.

    Raises:
        UnreadableAnswer: the bytes are not what its schema says.
    """
    try:
        check_lengths(response_type, body)
        return _read(response_type, body)
    # ValueError: a number that is none of an enumeration's, or a body that is malformed.
    except (SerialError, ValueError) as error:
        raise UnreadableAnswer(f"a broker sent an answer that cannot be read: {error}") from error


def _read(response_type: type[R], body: bytes) -> R:
    reader = entity_reader(response_type)
    try:
        response, _ = reader(body, 0)
    except (
        KeyError
    ):  # a tagged field that kio does not know; brokers of today send none, so no other answer pays for it
        response, _ = reader(cut_unknown_tags(response_type, body), 0)
    return response


async def exchange_with_any(
    addresses: Iterable[Address],
    options: ConnectionOptions,
    timeout_ms: int,
    request: RequestPayload,
    response_type: type[R],
) -> R:
    """Return the first answer of some brokers, over connections that last for this request; see `first_answer`.

    Raises:
        ConnectionFailed: no broker gave one.
    """

    async def try_one(address: Address) -> R:
        with closing(await BrokerConnection.open(address, options, timeout_ms)) as connection:
            return await exchange(connection, request, response_type)

    return await first_answer(addresses, try_one)


async def first_answer(addresses: Iterable[Address], try_one: Callable[[Address], Coroutine[Any, Any, T]]) -> T:
    """Try one broker after the other, and the next one as well when the last is silent for a while.

    A bug that shows with one broker is reported, and keeps no other one from answering.

    Raises:
        ConnectionFailed: none of them gave an answer that can be used; says why of each.
        Exception: a bug, where no broker answered.
    """
    untried = deque(addresses)
    trying: set[asyncio.Task[T]] = set()
    failures: list[ConnectionFailed] = []
    bugs: list[BaseException] = []
    try:
        while untried or trying:
            if untried:
                trying.add(asyncio.create_task(try_one(untried.popleft()), name="holdfast-first-answer"))
            patience_s = PATIENCE_S if untried else None
            done, trying = await asyncio.wait(trying, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            for failure in filter(None, [task.exception() for task in done]):
                if isinstance(failure, ConnectionFailed):
                    failures.append(failure)
                else:
                    bugs.append(failure)
            answered = [task for task in done if task.exception() is None]
            if answered:
                for bug in bugs:
                    context = {"message": "querying a broker failed", "exception": bug}
                    asyncio.get_running_loop().call_exception_handler(context)
                return answered[0].result()
        if bugs:
            raise bugs[0]
        raise all_failed(failures)
    finally:
        for task in trying:
            task.cancel()


def broker_links(
    options: ConnectionOptions,
    timeout_ms: int,
    limits: CallLimits | None = None,
    throttle_time_ms: Counter | None = None,
    open_broker: Callable[[Address, ConnectionOptions, int], Awaitable[BrokerConnection]] | None = None,
) -> Links[BrokerConnection]:
    """Return links to the brokers of a cluster.

    Args:
        options: how to connect.
        timeout_ms: bounds connecting, and each answer.
        limits: bounds of each call.
        throttle_time_ms: counts the pauses that brokers ask for.
        open_broker: connects to one of them; None: `BrokerConnection.open`.
    """

    async def open_one(address: Address) -> BrokerConnection:
        return await (open_broker or BrokerConnection.open)(address, options, timeout_ms)

    return Links(options.bootstrap, open_one, Sender(limits, throttle_time_ms))
