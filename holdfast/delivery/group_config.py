"""The configuration of a share group, by Kafka's names, with Kafka's defaults and bounds.

Source: Apache Kafka 4.3.1 `GroupConfig`, `ShareGroupConfig`, `GroupCoordinatorConfig`; bounds are those of a broker's `group.share.min` and
`group.share.max` settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

_DAY_MS: Final = 86_400_000
_DURATION: Final = re.compile(
    r"(-)?P(?:([-+]?\d+)D)?(?:T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+)(?:\.(\d{1,9}))?S)?)?", re.IGNORECASE
)
_BY_DURATION: Final = "by_duration:"


class OffsetReset(NamedTuple):
    """The place in a log at which a new group begins."""

    #: After the last record; else at the first one.
    is_latest: bool
    #: At the first record that is no older than this; None: the age of records does not matter.
    duration_ms: int | None = None

    def __str__(self) -> str:
        """Return it as Kafka writes it."""
        if self.duration_ms is not None:
            return f"{_BY_DURATION}PT{self.duration_ms / 1_000:g}S"
        return "latest" if self.is_latest else "earliest"


LATEST: Final = OffsetReset(True)
EARLIEST: Final = OffsetReset(False)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The configuration of a share group."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    record_lock_duration_ms: int = 30_000
    auto_offset_reset: OffsetReset = LATEST
    #: Records of transactions that were aborted, or are open, are not given out.
    is_committed: bool = False
    #: A record is given out so often at most.
    delivery_count_limit: int = 5
    #: From the start offset to the last record that was given out.
    partition_max_record_locks: int = 2_000
    renew_acknowledge_enable: bool = True
    assignment_interval_ms: int = 1_000


DEFAULT: Final = GroupConfig()


class ConfigRefused(ValueError):
    """A config that a group cannot have; the text names the config, the value and what is allowed."""


class ConfigRow(NamedTuple):
    """One config."""

    #: Kafka's.
    name: str
    field: str
    #: Returns the value of a text.
    parse: Callable[[str, str], object]


def _number(least: int, most: int) -> Callable[[str, str], object]:
    def parse(name: str, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ConfigRefused(f"{name} is {text[:100]!r}; it must be a number from {least} to {most}") from None
        if not least <= value <= most:
            raise ConfigRefused(f"{name} is {value}; it must be from {least} to {most}")
        return value

    return parse


def _choice(values: Mapping[str, object]) -> Callable[[str, str], object]:
    def parse(name: str, text: str) -> object:
        try:
            return values[text.strip().lower()]
        except KeyError:
            raise ConfigRefused(f"{name} is {text[:100]!r}; it must be {' or '.join(values)}") from None

    return parse


def _parse_reset(name: str, text: str) -> OffsetReset:
    lower = text.strip().lower()
    if lower in ("latest", "earliest"):
        return LATEST if lower == "latest" else EARLIEST
    if lower.startswith(_BY_DURATION):
        duration_ms = parse_duration_ms(lower.removeprefix(_BY_DURATION))
        if duration_ms is not None and duration_ms >= 0:
            return OffsetReset(False, duration_ms)
    raise ConfigRefused(
        f"{name} is {text[:100]!r}; it must be latest, earliest, or {_BY_DURATION} and an ISO-8601 duration that is not negative, "
        "as in by_duration:P3DT12H"
    )


def parse_duration_ms(text: str) -> int | None:
    """Return the milliseconds of an ISO-8601 duration of days, hours, minutes and seconds, as Java's `Duration.parse` reads it.

    None: it is none.
    """
    found = _DURATION.fullmatch(text)
    if found is None or text.upper().endswith(("P", "T")):
        return None
    sign, days, hours, minutes, seconds, fraction = found.groups()
    total_ms = int(days or 0) * _DAY_MS + int(hours or 0) * 3_600_000 + int(minutes or 0) * 60_000
    total_ms += int(seconds or 0) * 1_000
    fraction_ms = int((fraction or "").ljust(9, "0") or 0) // 1_000_000
    total_ms += -fraction_ms if (seconds or "").startswith("-") else fraction_ms
    return -total_ms if sign else total_ms


_YES_OR_NO: Final = {"true": True, "false": False}

CONFIGS: Final[Mapping[str, ConfigRow]] = {
    row.name: row
    for row in (
        ConfigRow("share.session.timeout.ms", "session_timeout_ms", _number(45_000, 60_000)),
        ConfigRow("share.heartbeat.interval.ms", "heartbeat_interval_ms", _number(5_000, 15_000)),
        ConfigRow("share.record.lock.duration.ms", "record_lock_duration_ms", _number(15_000, 60_000)),
        ConfigRow("share.auto.offset.reset", "auto_offset_reset", _parse_reset),
        ConfigRow(
            "share.isolation.level", "is_committed", _choice({"read_uncommitted": False, "read_committed": True})
        ),
        ConfigRow("share.delivery.count.limit", "delivery_count_limit", _number(2, 10)),
        ConfigRow("share.partition.max.record.locks", "partition_max_record_locks", _number(100, 4_000)),
        ConfigRow("share.renew.acknowledge.enable", "renew_acknowledge_enable", _choice(_YES_OR_NO)),
        ConfigRow("share.assignment.interval.ms", "assignment_interval_ms", _number(0, 15_000)),
    )
}
assert {row.field for row in CONFIGS.values()} == {field.name for field in fields(GroupConfig)}


def with_configs(config: GroupConfig, changes: Mapping[str, str]) -> GroupConfig:
    """Return a config with changes, by Kafka's names.

    Raises:
        ConfigRefused: a name is unknown, or a value is not allowed.
    """
    values: dict[str, Any] = {}
    for name, text in changes.items():
        row = CONFIGS.get(name)
        if row is None:
            raise ConfigRefused(f"{name[:100]} is no config of a share group; there are {', '.join(CONFIGS)}")
        values[row.field] = row.parse(name, text)
    changed: GroupConfig = replace(config, **values)
    # Their bounds let only equal times through.
    if changed.session_timeout_ms <= changed.heartbeat_interval_ms:
        raise ConfigRefused(
            f"share.session.timeout.ms is {changed.session_timeout_ms}; "
            f"it must be more than share.heartbeat.interval.ms, {changed.heartbeat_interval_ms}"
        )
    return changed
