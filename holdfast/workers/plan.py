"""Which workers a host has: how the node id, the addresses and the group instance id of each follow from the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from holdfast.daemon.settings.components.http import HttpSettings
from holdfast.daemon.settings.models import NODE_ID_MAX, Settings
from holdfast.kafka.addresses import format_address, parse_address

_PORT_MAX: Final = 65_535
#: Hosts to listen on everywhere, and where this host reaches what does.
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


class PlanRefused(Exception):
    """The settings leave no place for so many workers; the text names the setting to change."""


class Worker(NamedTuple):
    """A worker: a node with settings of its own."""

    node_id: int
    #: Where this host reaches it.
    address: str
    #: The settings that are its own, by name.
    settings: Mapping[str, object]


def plan_workers(settings: Settings, choose_ports: Callable[[str, int], Sequence[int]]) -> tuple[Worker, ...]:
    """Return the workers, by their node ids, which are the next ones from `node_id` on.

    The ports of their own are the next ones after that of `listen`, and so are those that they advertise after that of
    `advertised_listener`, and those of HTTP after that of `http.listen`; where that is the default, another
    one will do if they are in use.
    A `group.instance.id` gets the node id behind it.

    Args:
        settings: of `holdfast serve`.
        choose_ports: returns so many free ports of a host, where `listen` has port 0.

    Raises:
        PlanRefused: there are not so many ports or node ids.
    """
    host, port = settings.listener.listen_address
    advertised = settings.listener.advertised_address if settings.listener.advertised_listener else None
    instance, count = settings.members.group_instance_id, settings.host.workers
    last_id = settings.node_id + count - 1
    if last_id > NODE_ID_MAX:
        raise PlanRefused(
            f"node_id is {settings.node_id}, and {count} workers have the ids from it on up to {last_id}; "
            f"give it one of at most {NODE_ID_MAX - count + 1}."
        )
    ports = ports_after("listen", port, count) if port else choose_ports(host, count)
    advertised_ports = ports_after("advertised_listener", advertised[1], count) if advertised else ()
    workers = []
    for number, own_port in enumerate(ports):
        node_id = settings.node_id + number
        own: dict[str, object] = {
            "node_id": node_id,
            "listen": format_address(host, own_port),
            "membership": "group",
            # The supervisor gives the lines of all workers one form.
            "log_format": "json",
        }
        if settings.http.listen:
            own["http.listen"] = _http_address(settings.http, number)
            own["http.port.may.move"] = settings.http.may_move
        if instance:
            own["group.instance.id"] = f"{instance}-{node_id}"
        if advertised is not None:
            own["advertised_listener"] = format_address(advertised[0], advertised_ports[number])
        workers.append(Worker(node_id, format_address(_EVERYWHERE.get(host, host), own_port), own))
    return tuple(workers)


def _http_address(http: HttpSettings, number: int) -> str:
    """Return where the worker of this number, from 0 on, listens for HTTP."""
    host, port = parse_address(http.listen)
    return format_address(host, ports_after("http.listen", port, number + 1)[number] if port else 0)


def ports_after(setting: str, port: int, count: int) -> range:
    """Return the ports of so many workers, the next ones after `port`.

    Args:
        setting: has that port; for the error.
        port: of all workers.
        count: number of workers.

    Raises:
        PlanRefused: there are not so many.
    """
    if port + count > _PORT_MAX:
        raise PlanRefused(
            f"{setting} has port {port}, and {count} workers have the ports after it up to {port + count}; "
            f"give it one of at most {_PORT_MAX - count}."
        )
    return range(port + 1, port + 1 + count)
