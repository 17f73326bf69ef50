"""Numbers, times and links as the templates write them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

#: Seconds of a unit, and its sign; the largest first.
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def number(value: int | None) -> str:
    """Return a number in groups of three digits; what is not known is no number."""
    return "unknown" if value is None else f"{value:,}"


def rate(per_s: float | None) -> str:
    """Return records per second, with one decimal below ten."""
    if per_s is None:
        return "unknown"
    return f"{per_s:.1f}" if per_s < 10 else f"{per_s:,.0f}"


def counted(value: int, one: str, many: str = "") -> str:
    """Return a number with the noun that it counts."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def span(duration_ms: int) -> str:
    """Return a duration by its two largest units."""
    if duration_ms < 1_000:
        return f"{max(0, duration_ms)} ms"
    rest_s = duration_ms // 1_000
    for place, (unit_s, sign) in enumerate(_UNITS):
        if rest_s >= unit_s:
            more, below = rest_s % unit_s, _UNITS[place + 1 : place + 2]
            for smaller_s, smaller in below:
                if more >= smaller_s:
                    return f"{rest_s // unit_s} {sign} {more // smaller_s} {smaller}"
            return f"{rest_s // unit_s} {sign}"
    raise AssertionError("a second at least has a unit")


def at(time_ms: int) -> str:
    """Return a time to the second; a time that no calendar has is its number."""
    try:
        return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


def machine_time(time_ms: int) -> str:
    """Return a time as the attribute `datetime` has it; empty for one that no calendar has."""
    try:
        return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return ""


def offsets(first: int, last: int) -> str:
    """Return a range of offsets, both ends inclusive."""
    return f"{first}" if first == last else f"{first} – {last}"


def link(path: str, /, **parameters: str | int | None) -> str:
    """Return the address of a page, relative to any other, so that a proxy may have them below a path of its own."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path
