"""A produce quota is kept to: it makes writes slow, and makes no copies of them."""

import asyncio
import subprocess
from dataclasses import replace

import pytest

from holdfast.broker import find_java, kafka_classpath
from tests.real.log.log_node import LogNode, is_failure, log_config
from tests.real.running_node import read_log
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.real

WRITES = 300
#: Less than the pauses that the quota asks for, so that each of them would end a connection that waits for its answer;
#: and enough for an answer on a machine that is busy with other things.
REQUEST_TIMEOUT_MS = 8_000
BYTES_PER_SECOND = 500


def set_quota(kafka: str, client_id: str, bytes_per_second: int) -> None:
    """Bound what a client may produce."""
    command = [
        find_java(),
        "-cp",
        kafka_classpath(),
        "kafka.admin.ConfigCommand",
        "--bootstrap-server",
        kafka,
        "--alter",
    ]
    quota = ["--add-config", f"producer_byte_rate={bytes_per_second}"]
    subprocess.run(
        [*command, *quota, "--entity-type", "clients", "--entity-name", client_id],
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )


async def test_writes_beyond_a_produce_quota_are_slow_and_make_no_copies(
    kafka: str, new_topic: NewTopicFactory
) -> None:
    topic = new_topic()
    config = log_config(kafka, topic, request_timeout_ms=REQUEST_TIMEOUT_MS)
    config = replace(config, connection=replace(config.connection, client_id=topic))
    set_quota(kafka, topic, BYTES_PER_SECOND)
    node = LogNode("a", config, write_timeout_ms=600_000)
    await node.shell.start()
    try:
        await node.serve()
        throttled_ms = node.shell._log._metrics.throttle_time_ms
        rounds, began_s = 0, asyncio.get_running_loop().time()
        # Until the broker has asked for a pause that is longer than a request may take, and one more after it.
        while not throttled_ms.value > 1.2 * REQUEST_TIMEOUT_MS:
            rounds += 1
            for _ in range(WRITES):
                node.write_nowait(1)
            await node.wait_answers()
        asked_for_ms = throttled_ms.value
        assert await node.write(1) == rounds * WRITES + 1
        # All pauses were kept to, and not got around by hanging up.
        assert asyncio.get_running_loop().time() - began_s >= asked_for_ms / 1_000
    finally:
        assert await node.shell.stop(60)
    assert not any(is_failure(outcome) for outcome in node.outcomes.values())
    # One checkpoint, and each write once.
    assert len(read_log(kafka, topic, 0)) == 1 + rounds * WRITES + 1
