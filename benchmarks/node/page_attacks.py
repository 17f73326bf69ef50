"""Attack the page of a node: `python -m benchmarks.node.page_attacks [defaults | guarded]`.

One broker, and two nodes in turn: one at its defaults, and one that asks readers for certificates and has access rules. Attackers come
from 127.0.0.2. Beside them a client writes one share partition every 10 ms, and one looks at the first page twice a second. For each
attack: the answers by status (0: the connection was closed without one), the most memory of the node, and the 99th percentiles of both.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote, urlencode

from confluent_kafka import Producer

from benchmarks.attacks.caller import Healthy
from benchmarks.cluster import TOPIC, create_topic, running_kafka
from benchmarks.contenders import HoldfastNode
from benchmarks.machine import describe
from holdfast.broker import EmbeddedKafka
from holdfast.client import connect
from holdfast.daemon.access.acl import ANY, Acl, Operation, Permission, ResourceType
from holdfast.daemon.access.acl_file import line_of, write_lines
from holdfast.daemon.http.server import HttpBounds
from holdfast.daemon.settings.components.http import HttpSettings
from holdfast.page.web.app import PREFIX, make_app
from holdfast.records.share.batches import AVAILABLE, StateBatch
from holdfast.runtime.build import BUILD
from tests.real.page.attackers import SCRIPT, STREAMS, Bounds, Row, Target
from tests.world.http import get
from tests.world.identity.certificates import Authority, Pair

BOUNDS: Final = Bounds(HttpSettings().connections_max, HttpBounds().request_timeout_ms / 1_000)
#: How often a reader without rights asks for everything.
_TIMES: Final = 10
_ATTACKERS: Final = "127.0.0.2"
_PAUSE_S: Final = 0.5
_GROUP: Final = SCRIPT
#: A group of which nobody asks by its name.
_SECRET: Final = "salaries"

Attack = tuple[str, Callable[[], Awaitable[Counter[int]]]]


def main(names: Sequence[str]) -> int:
    """Attack the nodes of these names, `defaults` and `guarded`, or both; returns the exit code."""
    print(f"build {BUILD}; {describe('')['commit']}")
    with running_kafka(1) as kafka, tempfile.TemporaryDirectory() as directory:
        topic_id = create_topic(kafka)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce(TOPIC, SCRIPT, key=SCRIPT, headers=[(SCRIPT, SCRIPT.encode())], partition=0)
        producer.flush()
        if "guarded" not in names:
            _attack(HoldfastNode(), kafka, topic_id, None)
        if "defaults" not in names:
            _attack(_guarded(Path(directory)), kafka, topic_id, Path(directory))
    return 0


def _guarded(directory: Path) -> HoldfastNode:
    """Return a node whose readers show certificates: one who may see all groups, and one who may see nothing."""
    authority, rules = Authority(directory), directory / "acls"
    own = authority.sign("node", "/CN=node")
    for name in ("healthy", "hostile"):
        authority.sign(name, f"/CN={name}")
    healthy = ((Operation.DESCRIBE, ResourceType.GROUP), (Operation.READ, ResourceType.TOPIC))
    write_lines(rules, [line_of(Acl("User:CN=healthy", Permission.ALLOW, *each, ANY)) for each in healthy])
    node = HoldfastNode()
    node.settings |= {
        "acls_file": str(rules),
        "super.users": "User:ANONYMOUS",
        "http.tls.certificate.file": str(own.certificate),
        "http.tls.key.file": str(own.key),
        "http.tls.client.ca.file": str(authority.certificate),
    }
    return node


def _attack(node: HoldfastNode, kafka: EmbeddedKafka, topic_id: bytes, directory: Path | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    node.settings["http.listen"] = f"127.0.0.1:{port}"
    node.start(kafka)
    try:
        healthy, hostile = (
            (None, None) if directory is None else (_context(directory, name) for name in ("healthy", "hostile"))
        )
        target = Target(port, node.process_ids[0], BOUNDS, healthy, hostile, _ATTACKERS, _PAUSE_S)
        asyncio.run(_make_states(node, topic_id))
        asyncio.run(_until_ready(target, healthy))
        writer = Healthy(node.address, topic_id)
        asyncio.run(_suffer_all(target, healthy, is_guarded=directory is not None))
        times, troubles = writer.stop()
    finally:
        node.stop()
    print(f"\n{'a node that asks for certificates' if directory else 'a node at its defaults'}\n")
    print("| attack | answers | node, MiB | Writes: p50, p99 ms | page: p99 ms |\n| --- | --- | --: | --: | --: |")
    for row in target.rows:
        print(_line(row, times))
    print(f"\ntroubles of the client that writes: {dict(Counter(troubles)) or 'none'}")


def _line(row: Row, times: list[tuple[float, float]]) -> str:
    begun_s, ended_s = row.during_s
    writes = sorted(took for at, took in times if begun_s <= at < ended_s) or [0.0]
    p50, p99 = (writes[len(writes) * share // 100] for share in (50, 99))
    answers = ", ".join(f"{count:,} × {status}" for status, count in row.statuses.items())
    return f"| {row.attack} | {answers} | {row.memory_mib:.0f} | {p50:.1f}, {p99:.1f} | {row.p99_s * 1_000:.0f} |"


def _context(directory: Path, name: str) -> ssl.SSLContext:
    pair = Pair(directory / f"{name}.pem", directory / f"{name}.key")
    context = ssl.create_default_context(cafile=directory / "authority.pem")
    context.load_cert_chain(pair.certificate, pair.key)
    return context


async def _make_states(node: HoldfastNode, topic_id: bytes) -> None:
    async with connect(f"{node.address.host}:{node.address.port}") as client:
        for group in (_GROUP, _SECRET):
            await client.initialize(group, topic_id, 0, state_epoch=1, start_offset=0)
        await client.write(_GROUP, topic_id, 0, 1, 0, -1, [StateBatch(0, 0, AVAILABLE, 3)])


async def _until_ready(target: Target, healthy: ssl.SSLContext | None) -> None:
    while (await get(target.port, "/", healthy)).status != 200:  # noqa: ASYNC110  # the node has no event
        await asyncio.sleep(_PAUSE_S)


async def _suffer_all(target: Target, healthy: ssl.SSLContext | None, *, is_guarded: bool) -> None:
    one = urlencode({"group": _GROUP, "topic": TOPIC, "partition": 0}, quote_via=quote)
    shown = ("/", f"/group?{one}", f"/window?{one}", f"/offset?{one}&offset=0", f"/record?{one}&offset=0")
    attacks: list[Attack] = [
        ("none", target.calm),
        ("script in names and values", partial(target.names_with_script, shown)),
    ]
    if is_guarded:
        paths = await _all_paths(target.port, healthy)
        attack = partial(target.without_rights, paths, _TIMES, _SECRET)
        attacks.append((f"a reader without rights at {len(paths)} URLs, {_TIMES} times", attack))
    else:
        attacks += [
            ("foreign Host", target.foreign_hosts),
            ("foreign Origin and site", target.foreign_sites),
            ("other methods", target.other_methods),
            ("misspelled long names", target.misspelled_names),
            (f"{STREAMS:,} event streams", target.event_streams),
            (f"{3 * BOUNDS.connections_max} half requests", target.half_requests),
            ("slow readers", target.slow_readers),
        ]
    for name, attacking in attacks:
        await target.suffer(name, attacking)


async def _all_paths(port: int, healthy: ssl.SSLContext | None) -> list[str]:
    """Return the address of all that the port answers, with what each needs: by its description, and by the routes of the page."""
    values = {"group": _GROUP, "topic": TOPIC, "name": TOPIC, "partition": 0, "offset": 0, "topics": "{}"}
    described: Mapping[str, Any] = (await get(port, "/openapi.json", healthy)).json()["paths"]
    paths = []
    for path, methods in described.items():
        named = {
            each["name"] for each in methods["get"].get("parameters", ()) if each["required"] and each["in"] == "query"
        }
        query = urlencode({name: values[name] for name in sorted(named)}, quote_via=quote)
        paths.append(path.replace("{group}", quote(_GROUP, safe="")) + (f"?{query}" if query else ""))
    page = cast("Any", make_app(cast("Any", None)))._app
    shown = [each.path for each in page.routes if not each.path.startswith(PREFIX) and each.path not in described]
    query = urlencode(values, quote_via=quote)
    return paths + [f"{path.replace('{name}', 'style.css')}?{query}" for path in shown]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # So that servers are stopped on the way.
    sys.exit(main(sys.argv[1:]))
