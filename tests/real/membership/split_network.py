"""Brokers and nodes as hosts of a network of their own, each in its own network namespace, and links that lose packets in one direction.

Every host knows the hardware addresses of all others for good. A link is cut where its packets are sent to an address that no host has:
nothing is refused and no connection ends, as where a switch or a route loses them.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.broker.processes import ending_with_us
from tests.waiting import block_until

_CLONE_NEWNET: Final = 0x40000000
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
#: This process is a host, too, from which every other one can always be reached.
_OURS: Final = 1
_NOWHERE: Final = 0xFF


def network_problem() -> str | None:
    """Return why such a network cannot be made here; None: it can."""
    if lacking := [tool for tool in ("unshare", "nsenter", "ip") if shutil.which(tool) is None]:
        return f"network namespaces need {' and '.join(lacking)}"
    # A process of its own, so that nothing is left of it.
    command = "ip link add hub type bridge && ip link add one type veth peer name two"
    tried = subprocess.run(in_network_of_its_own(["sh", "-c", command]), capture_output=True, text=True, check=False)
    return f"no network of its own can be made: {tried.stderr.strip()}" if tried.returncode else None


def in_network_of_its_own(command: list[str]) -> list[str]:
    """Return a command that begins in a network namespace in which there is nothing."""
    return ["unshare", "--net", *command]


@dataclass(frozen=True, slots=True)
class Host:
    """A host of the network, by its number."""

    number: int
    #: Keeps its namespace.
    holder_pid: int

    @property
    def address(self) -> str:
        """Under which the others reach it."""
        return _address(self.number)

    def run(self, command: str) -> None:
        """Run a command in it."""
        _run(f"nsenter --net --target={self.holder_pid} {command}")

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Let processes that this thread starts meanwhile run in it."""
        with _namespace_of("self") as ours, _namespace_of(str(self.holder_pid)) as theirs:
            _enter(theirs)
            try:
                yield
            finally:
                _enter(ours)

    def write_java(self, directory: Path, java: str) -> Path:
        """Write a home of a Java that runs in it, for those who start Java in a thread of their own; returns it."""
        program = directory / f"java-{self.number}" / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nexec nsenter --net --target={self.holder_pid} {java} "$@"\n')
        program.chmod(0o755)
        return program.parents[1]


class SplitNetwork:
    """The hosts, and which links are cut."""

    def __init__(self, hosts: dict[str, Host]) -> None:
        self.hosts = hosts
        self._cut: set[tuple[str, str]] = set()

    def cut(self, sender: str, receiver: str) -> None:
        """Lose every packet in this direction from now on."""
        self._cut.add((sender, receiver))
        to = self.hosts[receiver].number
        self.hosts[sender].run(_neighbor(to, _NOWHERE))

    def part(self, one: str, other: str) -> None:
        """Lose every packet between two hosts from now on."""
        self.cut(one, other)
        self.cut(other, one)

    def heal(self) -> None:
        """Lose none any more."""
        for sender, receiver in self._cut:
            to = self.hosts[receiver].number
            self.hosts[sender].run(_neighbor(to, to))
        self._cut.clear()


@contextmanager
def split_network(names: list[str]) -> Iterator[SplitNetwork]:
    """Give a network of hosts with these names, of which this process, which is alone in its network namespace, is one more."""
    with ExitStack() as stack:
        _run("ip link set lo up")
        _run(f"ip link add net address {_hardware(_OURS)} type bridge")
        _run(f"ip addr add {_address(_OURS)}/24 dev net")
        _run("ip link set net up")
        hosts = {name: _make_host(stack, number) for number, name in enumerate(names, start=_OURS + 1)}
        for host in hosts.values():
            _run(_neighbor(host.number, host.number))
            for number in (_OURS, *(other.number for other in hosts.values() if other != host)):
                host.run(_neighbor(number, number))
        yield SplitNetwork(hosts)


def _make_host(stack: ExitStack, number: int) -> Host:
    holder = stack.enter_context(subprocess.Popen(ending_with_us(in_network_of_its_own(["sleep", "infinity"]))))
    stack.callback(holder.kill)
    ours = os.stat("/proc/self/ns/net").st_ino
    block_until(lambda: os.stat(f"/proc/{holder.pid}/ns/net").st_ino != ours, "the namespace of a host")
    host = Host(number, holder.pid)
    _run(f"ip link add port{number} type veth peer name net address {_hardware(number)} netns {holder.pid}")
    _run(f"ip link set port{number} master net up")
    host.run("ip link set lo up")
    host.run(f"ip addr add {host.address}/24 dev net")
    host.run("ip link set net up")
    return host


def _neighbor(number: int, hardware: int) -> str:
    return f"ip neigh replace {_address(number)} lladdr {_hardware(hardware)} nud permanent dev net"


def _address(number: int) -> str:
    return f"10.213.0.{number}"


def _hardware(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


@contextmanager
def _namespace_of(process: str) -> Iterator[int]:
    task = "thread-self" if process == "self" else process
    found = os.open(f"/proc/{task}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield found
    finally:
        os.close(found)


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "the network namespace cannot be entered")


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True)
