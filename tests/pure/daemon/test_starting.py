"""The wait of a node that starts for brokers, and what no wait mends."""

import asyncio

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.starting import BrokerWait
from holdfast.kafka.errors import ConnectionFailed, SetupRefused, VersionUnsupported

pytestmark = pytest.mark.virtual_time


async def test_brokers_are_awaited_for_as_long_as_it_takes_with_a_line_a_minute() -> None:
    wait, began_s = BrokerWait(), asyncio.get_running_loop().time()
    seen: list[str] = []

    async def step() -> int:
        seen.append(wait.why)
        if asyncio.get_running_loop().time() - began_s < 600:
            raise ConnectionFailed("127.0.0.1:9092 cannot be reached: Connection refused")
        return 7

    with capture_logs() as lines:
        assert await wait.patiently(step) == 7
    assert seen[1] == "the node waits for brokers: 127.0.0.1:9092 cannot be reached: Connection refused"
    assert (wait.why, lines[-1]["event"]) == ("", "brokers_found")
    assert {line["event"] for line in lines[:-1]} == {"brokers_awaited"}
    assert 9 <= len(lines) - 1 <= 11, "ten minutes"
    assert len(seen) < 600, "brokers that start are not pressed"


@pytest.mark.parametrize(
    "wrong", [SetupRefused("a wrong password"), VersionUnsupported("too old"), ValueError("a bug")]
)
async def test_what_no_wait_mends_ends_the_start_at_once(wrong: Exception) -> None:
    wait = BrokerWait()

    async def step() -> None:
        raise wrong

    with capture_logs() as lines, pytest.raises(type(wrong)):
        await wait.patiently(step)
    assert (lines, wait.why) == ([], "")
