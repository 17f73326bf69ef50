"""A node with TLS, logins and access rules under clients who may not come in, or may do nothing: nobody does, and others are served.

`python -m benchmarks.attacks` does the same with more connections, and prints what each attack cost.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.attacks import caller
from benchmarks.attacks.attacks import Target
from benchmarks.attacks.caller import Caller, Way
from benchmarks.attacks.probes import PROBES, acl_probes
from benchmarks.attacks.strangers import STRANGERS, Effort
from benchmarks.client import Address
from benchmarks.machine import memory_mib
from holdfast.api.results import InitializePartition
from holdfast.api.share_state import INITIALIZE
from tests.real.node.test_attacks import ABOVE_IDLE_MAX_MIB, be_served, suffer_offset
from tests.real.nodes import node_processes, topic_id_of
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S
from tests.world.identity.secured import SecuredFiles

pytestmark = pytest.mark.real


async def test_who_has_no_password_or_no_rights_gets_nothing_and_others_are_served_meanwhile(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Effort, "crowd", 24)
    monkeypatch.setattr(Effort, "seconds", 0.2)
    monkeypatch.setattr(caller, "_TIMEOUT_S", PATIENCE_S)
    files = SecuredFiles(tmp_path)
    files.let_in(admin="open sesame", nobody="simsim")
    orders = topic_id_of(kafka, new_topic(1))
    with node_processes(kafka, topic, tmp_path) as make:
        node = make(**files.settings, **{"ssl.client.auth": "requested"})
        await node.start()
        host, _, port = node.address.rpartition(":")
        place = Address(host, int(port))
        admin, nobody = (
            Way(str(files.authority.certificate), user, password)
            for user, password in (("admin", "open sesame"), ("nobody", "simsim"))
        )
        healthy = await Caller.open(place, admin)
        healthy.call_share(
            INITIALIZE, caller.share_body(INITIALIZE, "healthy", [(orders, [InitializePartition(0, 0, 0)])])
        )
        await healthy.receive()
        reports = {}
        for attack in (*STRANGERS, *PROBES):
            target = Target(place, orders, node.pid(), nobody if attack in PROBES else admin)
            idle_mib = peak_mib = memory_mib([node.pid()])
            running = asyncio.ensure_future(attack(target))
            while not running.done():
                await be_served(target, healthy, suffer_offset())
                peak_mib = max(peak_mib, memory_mib([node.pid()]))
                await asyncio.wait([running], timeout=0.02)
            reports[attack.__name__] = await running
            assert peak_mib - idle_mib <= ABOVE_IDLE_MAX_MIB, attack.__name__
        for name, text in reports.items():
            print(f"{name}: {text}")
            assert not any(word in text for word in ("ANSWERED", "let in", "HOLE")), (name, text)
        assert "closed" not in reports[acl_probes.__name__]
        assert "again refused" in reports["replayed_logins"]
        healthy.close()
        assert not [line for line in node.events() if line["level"] in ("error", "critical")]
