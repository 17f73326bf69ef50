"""The names under which readers see what a node counts and measures.

Code names an instrument in snake case with the unit that it is given (`write_latency_ms`), and `exported_name` is the one place that
makes the name and the unit under which all readers see it (`holdfast_write_latency_seconds`).

Source: https://prometheus.io/docs/practices/naming/.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar

from holdfast.metrics.instruments import Counter, Gauge, Histogram, Instrument

_PREFIX: Final = "holdfast_"
_MS: Final = "_ms"

_QUANTILES: Final = (("_p50", 0.5), ("_p99", 0.99))

Labels = tuple[tuple[str, str], ...]


I = TypeVar("I", bound=Instrument)  # noqa: E741


class Family(NamedTuple):
    """The series of one name, which differ by their labels."""

    name: str
    sort: type
    description: str
    #: Divisor that turns a value into the unit of the name.
    divisor: int
    series: dict[Labels, Instrument]


class Registry:
    """All series of a node, by name and labels.

    Requesting a series again gives the same instrument; requesting it as another sort is a bug of ours, a TypeError.
    """

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def counter(
        self, name: str, description: str, source: Callable[[], int] | None = None, **labels: object
    ) -> Counter:
        """Return the counter of that name and these labels; a `source` takes the place of an earlier one."""
        counter = self._get(Counter, name, description, labels)
        if source is not None:
            counter.source = source
        return counter

    def gauge(
        self, name: str, description: str, source: Callable[[], int | float] | None = None, **labels: object
    ) -> Gauge:
        """Return the gauge of that name and these labels; a `source` takes the place of an earlier one."""
        gauge = self._get(Gauge, name, description, labels)
        if source is not None:
            gauge.source = source
        return gauge

    def histogram(self, name: str, description: str, **labels: object) -> Histogram:
        """Return the histogram of that name, which ends in `_ms`, and these labels."""
        assert name.endswith(_MS), f"histograms are of times, and {name} names none"
        return self._get(Histogram, name, description, labels)

    def remove(self, **labels: object) -> None:
        """Remove every series that carries all of these labels, such as partition=3; at least one label is needed."""
        assert labels
        wanted = set(_to_labels(labels))
        for name, family in tuple(self._families.items()):
            for found in [found for found in family.series if wanted.issubset(found)]:
                del family.series[found]
            if not family.series:
                del self._families[name]

    def discard(self, name: str, sort: type, **labels: object) -> None:
        """Remove the one series of that name and exactly these labels, if it is there."""
        exported, _ = exported_name(name, sort)
        family = self._families.get(exported)
        if family is not None and family.series.pop(_to_labels(labels), None) is not None and not family.series:
            del self._families[exported]

    def families(self) -> tuple[Family, ...]:
        """Return all families, in the order in which they were made."""
        return tuple(self._families.values())

    def numbers(self, **more: object) -> Iterator[tuple[str, float]]:
        """Yield every number under its name, with labels and `more` of them as in `holdfast_log_partitions{state=active}`.

        A histogram has its count and sum, and what its buckets tell of median and 99th percentile since the start.
        Series may come and go meanwhile.
        """
        extra = _to_labels(more)
        for name, _, _, divisor, series in self.families():
            for labels, instrument in tuple(series.items()):
                text = _to_text(sorted(labels + extra))
                for suffix, value in _read(instrument, divisor):
                    yield name + suffix + text, value

    def _get(self, sort: type[I], name: str, description: str, labels: dict[str, object]) -> I:
        exported, divisor = exported_name(name, sort)
        family = self._families.get(exported)
        if family is None:
            family = self._families[exported] = Family(exported, sort, description, divisor, {})
        elif family.sort is not sort:
            raise TypeError(f"{name} is a {family.sort.__name__} already, not a {sort.__name__}")
        instrument = family.series.setdefault(_to_labels(labels), sort())
        assert isinstance(instrument, sort)
        return instrument


def exported_name(name: str, sort: type) -> tuple[str, int]:
    """Return the name under which readers see an instrument, and what its values are divided by to have the unit of that name."""
    total = "_total" if sort is Counter else ""
    if name.endswith(_MS):
        return f"{_PREFIX}{name.removesuffix(_MS)}_seconds{total}", 1_000
    return f"{_PREFIX}{name}{total}", 1


def _read(instrument: Instrument, divisor: int) -> Iterator[tuple[str, float]]:
    """Yield (suffix of the name, value)."""
    if isinstance(instrument, Histogram):
        yield "_count", instrument.count
        yield "_sum", instrument.sum_ms / divisor
        for suffix, share in _QUANTILES:
            yield suffix, instrument.quantile_ms(share) / divisor
    else:
        assert isinstance(instrument, Counter | Gauge)
        value = instrument.read()
        yield "", value if divisor == 1 else value / divisor


def _to_labels(labels: dict[str, object]) -> Labels:
    return tuple(sorted((name, str(value)) for name, value in labels.items()))


def _to_text(labels: list[tuple[str, str]]) -> str:
    return f"{{{','.join(f'{label}={text}' for label, text in labels)}}}" if labels else ""
