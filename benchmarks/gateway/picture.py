"""How the rate grows with consumers and with partitions, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from benchmarks.gateway.loads import BY_CONSUMERS, BY_PARTITIONS, Load

_WIDTH, _HEIGHT, _GAP = 340, 260, 60
_SIDES: Final = {"gateway": ("#0b7285", "gateway"), "kafka": ("#c92a2a", "stock broker")}
_FONT: Final = 'font-family="sans-serif" font-size="12"'


def growth_picture(runs: Sequence[dict[str, Any]]) -> str:
    """Return an SVG of two charts."""
    charts = [
        _chart(runs, BY_CONSUMERS, "consumers, 16 partitions", _GAP),
        _chart(runs, BY_PARTITIONS, "partitions, 4 consumers", 2 * _GAP + _WIDTH),
    ]
    width, height = 3 * _GAP + 2 * _WIDTH, _HEIGHT + 2 * _GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {_FONT}>'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *charts, "</svg>"]) + "\n"


def _chart(runs: Sequence[dict[str, Any]], loads: Mapping[int, Load], text: str, left: int) -> str:
    rates = {
        who: {count: rate for count, load in loads.items() if (rate := _rate(runs, load.name, who)) is not None}
        for who in _SIDES
    }
    most = max((rate for found in rates.values() for rate in found.values()), default=1.0)
    places = {count: left + _WIDTH * index // (len(loads) - 1) for index, count in enumerate(loads)}
    bottom = _GAP + _HEIGHT
    parts = [
        f'<path d="M{left} {_GAP}V{bottom}H{left + _WIDTH}" fill="none" stroke="#868e96"/>',
        f'<text x="{left}" y="{_GAP - 12}">records/s, thousands, by {text}</text>',
        *(
            f'<text x="{place}" y="{bottom + 18}" text-anchor="middle">{count}</text>'
            for count, place in places.items()
        ),
    ]
    for part in (0.5, 1.0):
        height = round(bottom - _HEIGHT * part)
        parts.append(f'<text x="{left - 6}" y="{height}" text-anchor="end">{most * part / 1_000:,.0f}</text>')
    for index, (who, (colour, name)) in enumerate(_SIDES.items()):
        points = [(places[count], round(bottom - _HEIGHT * rate / most)) for count, rate in rates[who].items()]
        line = " ".join(f"{x},{y}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in points]
        parts.append(f'<text x="{left + 12}" y="{_GAP + 14 + 16 * index}" fill="{colour}">{name}</text>')
    return "\n".join(parts)


def _rate(runs: Sequence[dict[str, Any]], load: str, who: str) -> float | None:
    found = [run["records_per_s"] for run in runs if (run["load"], run["contender"]) == (load, who)]
    return median(found) if found else None
