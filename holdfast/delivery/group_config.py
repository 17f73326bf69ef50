"""The configuration of a share group, by Kafka's names, with Kafka's defaults and bounds.

`CONFIGS` is the one table of them; `with_configs` turns texts, as settings and calls have them, into a `GroupConfig`.

Source: Apache Kafka 4.3.1 `GroupConfig`, `ShareGroupConfig`, `GroupCoordinatorConfig`; bounds are those of a broker's `group.share.min` and
`group.share.max` settings. Apache Kafka 4.4.0 for `share.assignor.offload.enable` and for the two of dead letters (KIP-1191).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?[0-9]{1,19})D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?[0-9]{1,19})H)?(?:(?P<minutes>[-+]?[0-9]{1,19})M)?"
    r"(?:(?P<seconds>[-+]?[0-9]{1,19})(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_UNITS_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
#: Longer durations are refused: the log is asked with a signed number of 64 bits.
_DURATION_MS_MAX: Final = (1 << 63) - 1
#: Characters of a wrong value that an error repeats.
_SHOWN_CHARACTERS_MAX: Final = 100


class OffsetReset(NamedTuple):
    """The place in a log at which a new group begins."""

    #: After the last record; else at the first one.
    is_latest: bool
    #: At the first record that is no older than this; None: the age of records does not matter.
    duration_ms: int | None = None

    def __str__(self) -> str:
        """Return it as Kafka writes it."""
        if self.duration_ms is None:
            return "latest" if self.is_latest else "earliest"
        seconds, ms = divmod(self.duration_ms, 1_000)
        fraction = f".{ms:03}".rstrip("0") if ms else ""
        return f"{_BY_DURATION}PT{seconds}{fraction}S"


LATEST: Final = OffsetReset(True)
EARLIEST: Final = OffsetReset(False)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The configuration of a share group; it is not checked here, so a test may go beyond the bounds."""

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
    #: Changes nothing: the assignment is computed where the heartbeat is answered.
    assignor_offload_enable: bool = True
    #: Empty: no dead letters, which is the only value so far.
    deadletterqueue_topic_name: str = ""
    deadletterqueue_copy_record_enable: bool = False


DEFAULT: Final = GroupConfig()


class ConfigRefused(ValueError):
    """A config that a group cannot have; the text names the config, the value and what is allowed."""


class Bounds(NamedTuple):
    """The least and the greatest value, both allowed."""

    low: int
    high: int


class ConfigRow(NamedTuple):
    """One config."""

    #: Kafka's.
    name: str
    #: Its field in `GroupConfig`.
    field: str
    #: Returns the value of a text, None if it is none.
    parse: Callable[[str], object]
    #: Completes the sentence "it must be …".
    wanted: str
    bounds: Bounds | None
    #: The first version of Kafka that has it.
    since: str


def _parse_number(text: str) -> int | None:
    # Neither underscores nor other digits, which `int` would take.
    return int(text) if re.fullmatch(r"[-+]?[0-9]{1,18}", text) else None


def _parse_flag(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def _parse_isolation(text: str) -> bool | None:
    return {"read_uncommitted": False, "read_committed": True}.get(text)


def _parse_nothing(text: str) -> str | None:
    return None if text else ""


def _parse_reset(text: str) -> OffsetReset | None:
    if not text.startswith(_BY_DURATION):
        return {"latest": LATEST, "earliest": EARLIEST}.get(text)
    duration_ms = parse_duration_ms(text.removeprefix(_BY_DURATION))
    if duration_ms is None or not 0 <= duration_ms <= _DURATION_MS_MAX:
        return None
    return OffsetReset(False, duration_ms)


def parse_duration_ms(text: str) -> int | None:
    """Return the milliseconds of an ISO-8601 duration of days, hours, minutes and seconds, rounded down; None: it is none.

    Its forms are those that Java's `Duration.parse` reads, with a sign before the whole or before any part.
    """
    found = _DURATION.fullmatch(text)
    if found is None or (found["time"] or "").upper() == "T":
        return None
    parts = [(found[unit], unit_ms) for unit, unit_ms in _UNITS_MS.items() if found[unit] is not None]
    if not parts:
        return None
    total_ns = sum(int(number) * unit_ms * 1_000_000 for number, unit_ms in parts)
    fraction_ns = int((found["fraction"] or "").ljust(9, "0"))
    # A fraction has the sign of its seconds: -0.5 is less than 0, though -0 is not.
    total_ns += -fraction_ns if (found["seconds"] or "").startswith("-") else fraction_ns
    return (-total_ns if found["sign"] == "-" else total_ns) // 1_000_000


def _number(name: str, field: str, low: int, high: int, since: str) -> ConfigRow:
    return ConfigRow(name, field, _parse_number, f"a number from {low} to {high}", Bounds(low, high), since)


def _flag(name: str, field: str, since: str) -> ConfigRow:
    return ConfigRow(name, field, _parse_flag, "true or false", None, since)


#: By name.
CONFIGS: Final[Mapping[str, ConfigRow]] = {
    row.name: row
    for row in (
        _number("share.session.timeout.ms", "session_timeout_ms", 45_000, 60_000, "4.0"),
        _number("share.heartbeat.interval.ms", "heartbeat_interval_ms", 5_000, 15_000, "4.0"),
        _number("share.record.lock.duration.ms", "record_lock_duration_ms", 15_000, 60_000, "4.0"),
        ConfigRow(
            "share.auto.offset.reset",
            "auto_offset_reset",
            _parse_reset,
            f"latest, earliest, or {_BY_DURATION} and an ISO-8601 duration that is not negative, as in {_BY_DURATION}P3DT12H",
            None,
            "4.0",
        ),
        ConfigRow(
            "share.isolation.level", "is_committed", _parse_isolation, "read_uncommitted or read_committed", None, "4.1"
        ),
        _number("share.delivery.count.limit", "delivery_count_limit", 2, 10, "4.3"),
        _number("share.partition.max.record.locks", "partition_max_record_locks", 100, 4_000, "4.3"),
        _flag("share.renew.acknowledge.enable", "renew_acknowledge_enable", "4.3"),
        _number("share.assignment.interval.ms", "assignment_interval_ms", 0, 15_000, "4.3"),
        _flag("share.assignor.offload.enable", "assignor_offload_enable", "4.4"),
        # A topic that is taken, and never written to, would lose records that its owner believes to be kept.
        ConfigRow(
            "errors.deadletterqueue.topic.name",
            "deadletterqueue_topic_name",
            _parse_nothing,
            "empty, because dead letters are not written yet",
            None,
            "4.4",
        ),
        _flag("errors.deadletterqueue.copy.record.enable", "deadletterqueue_copy_record_enable", "4.4"),
    )
}


def parse(name: str, text: str) -> object:
    """Return the value of a config, for its field in `GroupConfig`.

    Args:
        name: Kafka's.
        text: with spaces around it or without.

    Raises:
        ConfigRefused: the name is unknown, or the value is not allowed; the text is one sentence.
    """
    row = CONFIGS.get(name)
    if row is None:
        raise ConfigRefused(f"{_shown(name)} is no config of a share group; there are {', '.join(CONFIGS)}")
    value = row.parse(text.strip())
    if value is None or (
        row.bounds is not None and not (isinstance(value, int) and row.bounds.low <= value <= row.bounds.high)
    ):
        raise ConfigRefused(f"{name} is {_shown(text)}; it must be {row.wanted}")
    return value


def with_configs(config: GroupConfig, changes: Mapping[str, str]) -> GroupConfig:
    """Return a config with changes, by Kafka's names.

    Raises:
        ConfigRefused: a name is unknown, or a value is not allowed.
    """
    values: dict[str, Any] = {}
    for name, text in changes.items():
        value = parse(name, text)
        values[CONFIGS[name].field] = value
    changed: GroupConfig = replace(config, **values)
    # The bounds of texts never let it through; those of a config that was made without texts may.
    if changed.session_timeout_ms <= changed.heartbeat_interval_ms:
        raise ConfigRefused(
            f"share.session.timeout.ms is {changed.session_timeout_ms}; "
            f"it must be more than share.heartbeat.interval.ms, {changed.heartbeat_interval_ms}"
        )
    return changed


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}…")
