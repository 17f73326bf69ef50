"""The node itself and the others of its group: who answers at the port, who is reached, and whether all are one version."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from holdfast.client import ClientError, ClientSettings, connect
from holdfast.console.doctor.findings import Finding, Subject, right, warning, wrong
from holdfast.console.sources.group_nodes import other_nodes
from holdfast.daemon.settings.components.listener import SecuritySettings
from holdfast.distribution import VERSION
from holdfast.kafka.addresses import parse_address
from holdfast.kafka.security import PLAINTEXT, read_security

#: Events of lines that a node writes once, of what holds until somebody does something; other checks look for the rest of them.
_LASTING: Final = frozenset(
    (
        "access_closed",
        "cluster_setting_refused",
        "http_port_moved",
        "manifest_refused",
        "setting_doubted",
        "snapshot_topic_shared",
        "snapshots_put_aside",
        "state_bound_approached",
    )
)
_OF_EVERY_LINE: Final = ("timestamp", "level", "logger", "node_id", "worker")


async def check_node(subject: Subject) -> Sequence[Finding]:
    """Look at what answers where the node listens, and whether its port is free where nothing does."""
    try:
        status: Mapping[str, Any] | str = dict(await _query(subject, subject.address, "status"))
    except ClientError as failure:
        status = str(failure)
    return judge_node(subject.address, status, await _why_not_free(*parse_address(subject.address)))


def judge_node(address: str, status: Mapping[str, Any] | str, why_not_free: str) -> Sequence[Finding]:
    """Judge what answered at the address of the node: its status, or why there is none; and why the port cannot be taken."""
    if isinstance(status, str):
        if not why_not_free:
            return [
                warning(
                    f"no node runs at {address}, and the port is free",
                    "holdfast serve, or name the node with --address",
                )
            ]
        if why_not_free == "not here":
            remedy = "see that the node runs and that this machine reaches it, or name another with --address"
            return [wrong(f"no node answers at {address} ({status.removesuffix('.')})", remedy)]
        remedy = f"find what listens there (ss -ltnp 'sport = :{parse_address(address)[1]}'), or give the node another port with listen"
        return [wrong(f"{address} is taken ({why_not_free}), and not by a node that answers", remedy)]
    found = [right(f"node {status['node_id']} answers at {address}, version {status['version']}")]
    if status["version"] != VERSION:
        remedy = "start the node again with what is installed, or use the holdfast beside the node"
        found.append(warning(f"the node is version {status['version']}, and this is {VERSION}", remedy))
    if not status["is_ready"]:
        remedy = "holdfast partitions; the page Alarms and alerts has the rest"
        found.append(wrong(f"the node is not ready: {status['why_not_ready']}", remedy))
    return found


async def check_warnings(subject: Subject) -> Sequence[Finding]:
    """Look for what the node has warned of and what still holds, as far as its last lines go."""
    try:
        lines = (await _query(subject, subject.address, "debug"))["log_lines"]
    except ClientError:
        return [right("not looked at: no node answers that could show its lines")]
    return judge_lines(lines)


def judge_lines(lines: Sequence[str]) -> Sequence[Finding]:
    """Judge the last lines of a node, JSON each: the newest of each event of `_LASTING` is a warning."""
    newest: dict[str, dict[str, Any]] = {}
    for line in lines:
        with suppress(ValueError):  # a long line is cut
            fields = json.loads(line)
            if fields["event"] in _LASTING:
                newest[fields.pop("event")] = fields
    found = []
    for event, fields in newest.items():
        said = ", ".join(f"{name} {value}" for name, value in fields.items() if name not in _OF_EVERY_LINE)
        remedy = f"see {event} in the page Log events"
        found.append(
            warning(f"the node warned at {fields.get('timestamp')}: {event}" + f" ({said})" * bool(said), remedy)
        )
    return found or [right("of nothing that still holds, in its last lines")]


async def check_others(subject: Subject) -> Sequence[Finding]:
    """Reach the other nodes of the group, which the node here names."""
    try:
        rows = await _query(subject, subject.address, "members")
        own = await _query(subject, subject.address, "status")
    except ClientError:
        return [right("not looked at: no node answers that could name them")]
    others = other_nodes(rows)
    answers = await asyncio.gather(*(_status_of(subject, each.address) for each in others))
    absent = [str(row["node_id"]) for row in rows if row["state"] == "absent"]
    return judge_others(str(own["version"]), dict(zip(map(str, others), answers, strict=True)), absent)


def judge_others(
    version: str, answers: Mapping[str, Mapping[str, Any] | str], absent: Sequence[str]
) -> Sequence[Finding]:
    """Judge what the other nodes answered, by their names; and those that have left and are waited for, by their node ids."""
    found = []
    for name, answer in answers.items():
        if isinstance(answer, str):
            remedy = "see that it runs, and mend its advertised_listener or the way from here to it"
            found.append(wrong(f"{name} does not answer ({answer.removesuffix('.')})", remedy))
        elif not answer["is_ready"]:
            found.append(warning(f"{name} is not ready: {answer['why_not_ready']}", "holdfast doctor on that machine"))
    versions = {version, *(str(answer["version"]) for answer in answers.values() if not isinstance(answer, str))}
    if len(versions) > 1:
        remedy = "upgrade the others, too; `holdfast members` shows which is which"
        found.append(warning(f"the nodes are several versions: {', '.join(sorted(versions))}", remedy))
    found += [
        warning(f"node {node_id} has left and is waited for", "start it again, or wait until its session ends")
        for node_id in absent
    ]
    return found or [right(f"{len(answers)} others, and each answers, is ready and version {version}")]


async def _status_of(subject: Subject, address: str) -> Mapping[str, Any] | str:
    try:
        return dict(await _query(subject, address, "status"))
    except ClientError as failure:
        return str(failure)


async def describe_node(security: SecuritySettings | None, address: str, timeout_ms: int) -> dict[str, object]:
    """Return the settings of the node at an address, secrets hidden; none where no node answers or lets us look."""
    try:
        return dict(await _ask(security, address, "settings", timeout_ms))
    except (ClientError, ValueError, OSError):
        return {}


async def _query(subject: Subject, address: str, command: str) -> Any:  # noqa: ANN401
    return await _ask(subject.settings.security, address, command, subject.timeout_ms)


async def _ask(security: SecuritySettings | None, address: str, command: str, timeout_ms: int) -> Any:  # noqa: ANN401
    third_ms = max(1, timeout_ms // 3)
    client_settings = ClientSettings(connect_timeout_ms=third_ms, request_timeout_ms=third_ms, attempts_max=1)
    path = "" if security is None else security.client_properties_file
    async with connect(address, client_settings, read_security(Path(path)) if path else PLAINTEXT) as client:
        return await client.admin(command)


async def _why_not_free(host: str, port: int) -> str:
    """Return why an address cannot be listened at; empty where it can, "not here" where it is none of this machine."""

    def probe() -> str:
        try:
            places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            return "not here"
        for family, kind, _, _, place in places:  # a node listens at all of them
            with socket.socket(family, kind) as made:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                try:
                    made.bind(place)
                    made.listen(1)
                except OSError as error:
                    return "not here" if error.errno == errno.EADDRNOTAVAIL else error.strerror or str(error)
        return ""

    return await asyncio.to_thread(probe)
