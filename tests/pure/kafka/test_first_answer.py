"""One broker that cannot be used keeps no other one from answering."""

import asyncio
from typing import Any

import pytest

from holdfast.kafka.aiokafka_parts import open_transport
from holdfast.kafka.connection_options import Address, ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed, LoginDenied, SetupRefused
from holdfast.kafka.exchange import first_answer


async def answer(address: Address) -> str:
    match address[0]:
        case "bug":
            raise TypeError("a bug")
        case "gone":
            raise ConnectionFailed("nothing listens there")
    return address[0]


async def test_a_bug_with_one_broker_is_reported_and_the_next_one_answers() -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    assert await first_answer([("bug", 1), ("gone", 1), ("good", 1)], answer) == "good"
    assert [str(bug) for bug in reported] == ["a bug"]


async def test_where_no_broker_answered_a_bug_is_not_hidden_behind_those_that_are_gone() -> None:
    with pytest.raises(TypeError, match="a bug"):
        await first_answer([("bug", 1), ("gone", 1)], answer)
    with pytest.raises(ConnectionFailed, match="nothing listens there; nothing listens there"):
        await first_answer([("gone", 1), ("gone", 2)], answer)


@pytest.mark.parametrize(
    ("failures", "wanted"),
    [
        ([ConnectionFailed("gone"), LoginDenied("a wrong password")], LoginDenied),
        ([SetupRefused("no such authority"), ConnectionFailed("gone")], SetupRefused),
        ([SetupRefused("no such authority"), LoginDenied("a wrong password")], LoginDenied),
        ([ConnectionFailed("gone"), ConnectionFailed("silent")], ConnectionFailed),
    ],
)
async def test_a_refusal_by_one_broker_is_what_all_that_failed_amount_to(
    failures: list[ConnectionFailed], wanted: type[ConnectionFailed]
) -> None:
    async def fail(address: Address) -> str:
        raise failures[address[1]]

    with pytest.raises(ConnectionFailed) as caught:
        await first_answer([("broker", port) for port in range(len(failures))], fail)
    assert (type(caught.value), str(caught.value)) == (wanted, "; ".join(map(str, failures)))


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example"])
async def test_a_host_that_can_be_no_name_is_a_broker_that_cannot_be_reached(host: str) -> None:
    with pytest.raises(ConnectionFailed, match="cannot be reached"):
        await open_transport((host, 9092), ConnectionOptions(bootstrap=((host, 9092),)), 1_000)
