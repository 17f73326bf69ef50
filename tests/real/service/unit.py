"""A unit of systemd, as far as it says what its process may read, write and call.

systemd itself runs nothing here: what a unit says of users, directories and limits is carried out by the same means of the kernel
(mount namespaces, seccomp, capabilities), so a file that the node cannot read, and a call that it needs, fail as they would.
A line that neither this nor systemd's manager has to do with is not known here, and fails the test until somebody has looked at it.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Final

#: Where systemd has the directories of a service, by the line that asks for one, and what stands for it in other lines.
_PLACES: Final = {"State": ("/var/lib", "%S"), "Cache": ("/var/cache", "%C"), "Logs": ("/var/log", "%L")}
#: Lines that are for systemd's manager.
_OF_THE_MANAGER: Final = frozenset(
    [
        "Type",
        "NotifyAccess",
        "ExecReload",
        "Restart",
        "RestartSec",
        "RestartPreventExitStatus",
        "TimeoutStartSec",
        "WatchdogSec",
        "KillSignal",
        "KillMode",
        "TimeoutStopSec",
    ]
)
#: Lines that are not carried out here, and why that hides nothing from the test.
_NOT_TRIED: Final = {
    "PrivateUsers": "the owners of files that the node reads are mapped: root, and its own user and group",
    "ProtectClock": "takes what needs a capability, and there is none",
    "ProtectControlGroups": "makes read-only what a user without capabilities cannot write",
    "ProtectHostname": "takes what needs a capability, and there is none",
    "ProtectKernelLogs": "takes what needs a capability, and there is none",
    "ProtectKernelModules": "takes what needs a capability, and there is none",
    "RestrictNamespaces": "takes what needs a capability, and there is none",
    "RestrictRealtime": "takes what needs a capability, and there is none",
    "RestrictSUIDSGID": "takes a mode of files that nothing here has",
    "RemoveIPC": "is for when the service has ended",
    "LockPersonality": "takes one call that nothing here makes",
    "SystemCallArchitectures": "takes calls of other processors",
}
_KNOWN: Final = frozenset(
    [
        "User",
        "ExecStart",
        "Environment",
        "StateDirectory",
        "CacheDirectory",
        "LogsDirectory",
        "StateDirectoryMode",
        "CacheDirectoryMode",
        "LogsDirectoryMode",
        "CapabilityBoundingSet",
        "NoNewPrivileges",
        "ProtectSystem",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "ProtectKernelTunables",
        "ProtectProc",
        "ProcSubset",
        "RestrictAddressFamilies",
        "MemoryDenyWriteExecute",
        "SystemCallFilter",
        "SystemCallErrorNumber",
        "UMask",
        "LimitNOFILE",
    ]
)
#: What the node needs of /dev besides memory that processes share.
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_FILTERED: Final = Path(__file__).with_name("filtered.py")


#: What `ProtectHome` and `PrivateTmp` hide.
_HOMES: Final = ("/home", "/root")
_TEMPORARY: Final = ("/tmp", "/var/tmp")


def under_test() -> list[Path]:
    """Return where the Python under test lies, its environment and the clone whose sources it has; none is within another."""
    clone = Path(__file__).parents[3]
    places = {Path(sys.base_prefix).resolve(), Path(sys.base_prefix), Path(sys.prefix), clone}
    return sorted(place for place in places if not any(place != each and place.is_relative_to(each) for each in places))


class Unit:
    """The lines about a service, those of a drop-in behind those of the unit."""

    def __init__(self, *texts: str) -> None:
        self._lines: dict[str, list[str]] = {}
        for text in texts:
            for name, value in _lines_of(text):
                assert name in _KNOWN | _OF_THE_MANAGER | _NOT_TRIED.keys(), (
                    f"{name} of the unit is not known to the test"
                )
                # Nothing behind the sign forgets what came before.
                self._lines[name] = [*self._lines.get(name, []), value] if value else []

    def value(self, name: str) -> str:
        """Return what the last line of this name says; empty if there is none."""
        return (self._lines.get(name) or [""])[-1]

    def has(self, name: str) -> bool:
        """Return whether a line says yes."""
        return self.value(name) == "yes"

    @property
    def user(self) -> str:
        """Who the process is."""
        return self.value("User")

    @property
    def directories(self) -> Mapping[str, str]:
        """The directories that it may write, each with its mode."""
        named = {each: self.value(f"{each}Directory") for each in _PLACES}
        return {
            f"{_PLACES[each][0]}/{name}": self.value(f"{each}DirectoryMode") or "755"
            for each, name in named.items()
            if name
        }

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that it sets."""
        pairs = dict(line.split("=", 1) for line in self._lines.get("Environment", []))
        for place, sign in _PLACES.values():
            pairs = {name: value.replace(sign, place) for name, value in pairs.items()}
        return pairs

    def start(self, root: Path) -> Sequence[str]:
        """Return the command that becomes the service within the machine at `root`, in a mount namespace of its own."""
        privileges = [f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
        privileges += ["--no-new-privs"] * self.has("NoNewPrivileges")
        if self._lines.get("CapabilityBoundingSet") == []:
            privileges += ["--bounding-set=-all", "--inh-caps=-all"]
        entered = ["chroot", str(root), "setpriv", *privileges, sys.executable, "-S", str(_FILTERED), self._filters()]
        files = self.value("LimitNOFILE")
        # Root may be no more than what it was given itself.
        limit = f'most=$(ulimit -Hn); [ "$most" != unlimited ] && [ "$most" -lt {files} ] || ulimit -n {files}'
        script = [*self._mounts(str(root)), f"umask {self.value('UMask')}", limit, "cd /"]
        command = shlex.join([*entered, *shlex.split(self.value("ExecStart"))])
        return [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "bash",
            "-euc",
            "\n".join([*script, f"exec {command}"]),
        ]

    def _mounts(self, root: str) -> Iterator[str]:
        for directory, mode in self.directories.items():
            path = f"{root}{directory}"
            yield f"mkdir -p {path}"
            yield f"chroot {root} chown {self.user}:{self.user} {directory}"
            yield f"chmod {mode} {path}"
            yield f"mount --bind {path} {path}"
        yield f"test {self.value('ProtectSystem')} = strict"
        yield f"mount -o remount,bind,ro {root}"
        # The Python under test and the clone may lie where the unit hides all, and are then all that is left there.
        hidden = [*_HOMES * self.has("ProtectHome"), *_TEMPORARY * self.has("PrivateTmp")]
        kept = [place for place in under_test() if any(place.is_relative_to(each) for each in hidden)]
        yield f"mount -t tmpfs none {root}/mnt"
        for number, place in enumerate(kept):
            yield f"mkdir {root}/mnt/{number} && mount --bind {quote(str(place))} {root}/mnt/{number}"
        for each in hidden:
            yield f"mount -t tmpfs -o mode={1777 if each in _TEMPORARY else 755} none {root}{each}"
        for number, place in enumerate(kept):
            again = f"{root}{quote(str(place))}"
            yield f"mkdir -p {again} && mount --move {root}/mnt/{number} {again}"
        yield f"umount {root}/mnt"
        if self.has("PrivateDevices"):
            yield f"mount -t tmpfs -o mode=755 none {root}/dev && mkdir {root}/dev/shm"
            yield f"mount -t tmpfs -o mode=1777 none {root}/dev/shm"
            yield f"ln -s /proc/self/fd {root}/dev/fd"
            yield from (f"touch {root}/dev/{each} && mount --bind /dev/{each} {root}/dev/{each}" for each in _DEVICES)
        options = [f"hidepid={self.value('ProtectProc')}"] + ["subset=pid"] * (self.value("ProcSubset") == "pid")
        yield f"umount -R {root}/proc && mount -t proc -o {','.join(options)} proc {root}/proc"
        if self.has("ProtectKernelTunables"):
            yield f"mount -o remount,bind,ro {root}/sys"

    def _filters(self) -> str:
        """Return what `filtered.py` is to take from the process."""
        return json.dumps(
            {
                "calls": sorted(self._calls()),
                "families": self.value("RestrictAddressFamilies").split(),
                "writes_code": not self.has("MemoryDenyWriteExecute"),
            }
        )

    def _calls(self) -> set[str]:
        """Return the system calls that are allowed."""
        groups = _groups()
        allowed = set(groups["@default"])
        for line in self._lines["SystemCallFilter"]:
            named = {call for word in line.removeprefix("~").split() for call in groups.get(word, {word})}
            allowed = allowed - named if line.startswith("~") else allowed | named
        return allowed


def _lines_of(text: str) -> Iterator[tuple[str, str]]:
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line
        elif section == "[Service]" and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield name, value


def _groups() -> Mapping[str, set[str]]:
    """Return systemd's names for groups of system calls, each with its calls."""
    output = subprocess.run(["systemd-analyze", "syscall-filter"], capture_output=True, text=True, check=True).stdout
    found: dict[str, set[str]] = {}
    group = ""
    for line in output.splitlines():
        if line.startswith("@"):
            group = line
            found[group] = set()
        elif (word := line.strip()) and not word.startswith("#"):
            found[group].add(word)

    def flat(name: str) -> set[str]:
        return {each for word in found[name] for each in (flat(word) if word.startswith("@") else {word})}

    return {name: flat(name) for name in found}
