"""What a node counts and measures: instruments, and the registry that names them.

Instruments are plain objects, so that the hot path pays an attribute and no look-up: keep the object and add to it,
as in `counter.value += 1`.
They hold totals and values of now alone; rates, averages and quantiles over a time are for who reads them, such as Prometheus.
Code names an instrument in snake case with the unit that it is given (`write_latency_ms`), and `exported_name` is the one place that
makes the name and the unit under which all readers see it (`holdfast_write_latency_seconds`).

Source: https://prometheus.io/docs/practices/naming/.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol, TypeVar

_PREFIX: Final = "holdfast_"
_MS: Final = "_ms"

#: Upper ends of the buckets of each histogram, inclusive, in ms; what is longer is in one more.
BUCKETS_MS: Final = (
    *(0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500),
    *(1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000),
)
_QUANTILES: Final = (("_p50", 0.5), ("_p99", 0.99))

Labels = tuple[tuple[str, str], ...]


class Counter:
    """A total since the start of the process, which never goes down: counted by hand, or taken from `source` at each reading."""

    __slots__ = ("source", "value")

    def __init__(self, source: Callable[[], int] | None = None) -> None:
        self.value = 0
        self.source = source

    def read(self) -> float:
        """Return the total."""
        return self.value if self.source is None else self.source()


class Gauge:
    """A value of now: set by hand, or taken from `source` at each reading."""

    __slots__ = ("source", "value")

    def __init__(self, source: Callable[[], float] | None = None) -> None:
        self.value: float = 0
        self.source = source

    def read(self) -> float:
        """Return the value of now."""
        return self.value if self.source is None else self.source()


class Histogram:
    """How many times were how long, since the start of the process."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        #: by bucket of `BUCKETS_MS`, each without those before it; one more for what is longer
        self.counts = [0] * (len(BUCKETS_MS) + 1)
        self.sum_ms = 0.0

    def record(self, value_ms: float) -> None:
        """Take in one time; below 0, as after a step of a clock, it is 0."""
        if value_ms < 0:
            value_ms = 0.0
        self.counts[bisect_left(BUCKETS_MS, value_ms)] += 1
        self.sum_ms += value_ms

    @property
    def count(self) -> int:
        """How many times were taken in."""
        return sum(self.counts)

    def quantile_ms(self, share: float) -> float:
        """Return the time that this share of all times did not exceed, as far as buckets tell; 0 while there are none.

        Within a bucket times count as evenly spread; beyond the last one, it is the last end. So does Prometheus.
        """
        rank, seen, lower_ms = share * self.count, 0, 0.0
        for upper_ms, count in zip(BUCKETS_MS, self.counts, strict=False):
            if count and seen + count >= rank:
                return lower_ms + (upper_ms - lower_ms) * (rank - seen) / count
            seen, lower_ms = seen + count, upper_ms
        return lower_ms if seen < self.count else 0.0


class Instrument(Protocol):
    """Any of the three."""


I = TypeVar("I", bound=Instrument)  # noqa: E741


class Family(NamedTuple):
    """The series of one name, which differ by their labels."""

    name: str
    sort: type
    description: str
    #: What a value is divided by to have the unit of the name.
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

    def gauge(self, name: str, description: str, source: Callable[[], float] | None = None, **labels: object) -> Gauge:
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
