"""`holdfast page` under attack, in one table: what each attacker gets, the memory of the process, and how long a healthy client waits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import quote

import pytest
from confluent_kafka import Producer

from holdfast.client import connect
from holdfast.page.web.events import STREAMS_MAX
from holdfast.page.web.server import CONNECTIONS_MAX, PATIENCE_S
from holdfast.records.share.batches import AVAILABLE, StateBatch
from tests import waiting
from tests.real.nodes import PATIENT_CLIENT, topic_id_of
from tests.real.page.attackers import SCRIPT, STREAMS, Bounds, Target
from tests.real.page.opened import answer_when, page_command
from tests.real.shared_kafka import NewTopicFactory

pytestmark = pytest.mark.real

#: A page that is rendered while the machine is busy with a thousand connections takes longer than one that is not.
SLOWER_MAX: Final = 20
#: And this is no delay, however fast the calm page was.
DELAY_S: Final = 2.0
GROWTH_MAX_MIB: Final = 64
HALF_REQUESTS: Final = 3 * CONNECTIONS_MAX
BOUNDS: Final = Bounds(CONNECTIONS_MAX, PATIENCE_S)


@asynccontextmanager
async def target(kafka: str, group: str) -> AsyncIterator[Target]:
    """Give the page, once it shows a group."""
    with page_command(kafka) as (port, pid):
        await answer_when(port, f"/group?group={quote(group, safe='')}", lambda answer: answer.status == 200)
        yield Target(port, pid, BOUNDS)


async def test_attackers_get_little_and_a_healthy_client_what_it_asks_for(
    kafka: str, new_topic: NewTopicFactory
) -> None:
    topic = new_topic(1)
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(topic, SCRIPT, key=SCRIPT, headers=[(SCRIPT, SCRIPT.encode())])
    assert producer.flush(waiting.PATIENCE_S) == 0
    async with connect(kafka, PATIENT_CLIENT) as client:
        topic_id = topic_id_of(kafka, topic)
        await client.initialize(SCRIPT, topic_id, 0, state_epoch=1, start_offset=0)
        await client.write(SCRIPT, topic_id, 0, 1, 0, -1, [StateBatch(0, 0, AVAILABLE, 3)])

    async with target(kafka, SCRIPT) as page:
        one = f"group={quote(SCRIPT, safe='')}&topic={topic}&partition=0"
        paths = ("/", f"/group?{one}", f"/window?{one}", f"/offset?{one}&offset=0", f"/record?{one}&offset=0")
        assert await page.names_with_script(paths) == {200: 5}
        assert await page.suffer("none", page.calm) == {200: 1}
        assert await page.suffer("foreign Host", page.foreign_hosts) == {421: 3}
        assert await page.suffer("foreign Origin and site", page.foreign_sites) == {403: 4}
        assert await page.suffer("other methods", page.other_methods) == {405: 5}
        assert await page.suffer("misspelled long names", page.misspelled_names) == {404: 30}
        streams = await page.suffer(f"{STREAMS} event streams", page.event_streams)
        assert 0 < streams.get(200, 0) <= STREAMS_MAX
        assert streams.keys() <= {0, 200, 503}
        assert await page.suffer(f"{HALF_REQUESTS} half requests", page.half_requests) == {0: HALF_REQUESTS}
        assert await page.suffer("slow readers", page.slow_readers) == {0: 5}

    print()
    for row in page.rows:
        print(f"{row.attack:24} {row.statuses!s:36} p99 {1_000 * row.p99_s:6.0f} ms {row.memory_mib:5.0f} MiB")
    calm = page.rows[0]
    for row in page.rows:
        assert row.p99_s < max(DELAY_S, SLOWER_MAX * calm.p99_s), row
        assert row.memory_mib < calm.memory_mib + GROWTH_MAX_MIB, row
