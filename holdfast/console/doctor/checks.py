"""The table of all checks, in the order in which they are shown; and which of them say nothing without another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.console.doctor.brokers import check_brokers, check_clock
from holdfast.console.doctor.certificates import check_certificates
from holdfast.console.doctor.findings import Check, Level, Line
from holdfast.console.doctor.job import check_job
from holdfast.console.doctor.logins import check_logins
from holdfast.console.doctor.machine import check_files, check_java, check_memory, check_versions
from holdfast.console.doctor.nodes import check_node, check_others, check_warnings
from holdfast.console.doctor.permissions import check_permissions
from holdfast.console.doctor.topics import check_log, check_snapshots

CHECKS: Final[Mapping[str, Check]] = {
    "versions": check_versions,
    "java": check_java,
    "job": check_job,
    "memory": check_memory,
    "open files": check_files,
    "certificates": check_certificates,
    "logins and rules": check_logins,
    "brokers": check_brokers,
    "clock": check_clock,
    "ACLs": check_permissions,
    "state topic": check_log,
    "snapshot topic": check_snapshots,
    "node": check_node,
    "its warnings": check_warnings,
    "other nodes": check_others,
}

_BROKERS: Final = "brokers"
#: Checks that query brokers.
_OF_BROKERS: Final = frozenset({"clock", "ACLs", "state topic", "snapshot topic"})


def without_brokers(lines: Sequence[Line]) -> list[Line]:
    """Return the findings with one line for all that brokers alone can tell, where there is none that is right to query."""
    unmade = [line for line in lines if line.check in _OF_BROKERS and line.level == Level.UNKNOWN.value]
    if not unmade or any(line.check == _BROKERS and line.level == Level.RIGHT.value for line in lines):
        return list(lines)
    names = ", ".join(dict.fromkeys(line.check for line in unmade))
    one = Line(_BROKERS, Level.UNKNOWN.value, f"without any, these could not be looked at: {names}", "")
    place = lines.index(unmade[0])
    others = [line for line in lines if line not in unmade]
    return [*others[:place], one, *others[place:]]
