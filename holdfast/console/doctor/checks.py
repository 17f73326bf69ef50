"""The table of all checks, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.console.doctor.brokers import check_brokers, check_clock
from holdfast.console.doctor.certificates import check_certificates
from holdfast.console.doctor.findings import Check
from holdfast.console.doctor.logins import check_logins
from holdfast.console.doctor.machine import check_files, check_java, check_memory, check_versions
from holdfast.console.doctor.nodes import check_node, check_others
from holdfast.console.doctor.permissions import check_permissions
from holdfast.console.doctor.topics import check_log, check_snapshots

CHECKS: Final[Mapping[str, Check]] = {
    "versions": check_versions,
    "java": check_java,
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
    "other nodes": check_others,
}
