"""What a node counts and measures, in a registry that any exporter can read.

Instruments are plain objects, so that the hot path pays an attribute and no look-up: keep the object and add to it,
as in `counter.value += 1`.
Rates, averages, maxima and quantiles cover the last one to two windows of 30 s (as Kafka's do).
Windows turn only in `Registry.roll`, which the node's tick calls every second or so: all readers see the same.
Names are Kafka's where the meaning is (`event-queue-time-ms-p99`), lower case with dashes; labels tell series apart.

Source: Apache Kafka 4.3.1 `CoordinatorRuntimeMetricsImpl`, `ShareCoordinatorMetrics`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple, Protocol, TypeVar

Kind = Literal["counter", "gauge"]
Reading = tuple[str, Kind, float]

WINDOW_MS: Final = 30_000
#: Histograms take values from 0 to this; what lies outside is clamped.
HISTOGRAM_MAX_MS: Final = 60_000

#: Values are counted in microseconds. Up to 2 * 128 they have a bucket each, then 128 buckets for each power of two:
#: a bucket is at most 1/128 wide, and its middle at most 0.4 % away from any value in it.
_SUB_BUCKET_BITS: Final = 7
_SMALL: Final = 2 << _SUB_BUCKET_BITS
_MICROS_MAX: Final = HISTOGRAM_MAX_MS * 1_000
_QUANTILES: Final = (("-p50", 0.5), ("-p95", 0.95), ("-p99", 0.99), ("-p999", 0.999))


class Instrument(Protocol):
    """What everything in the registry can do."""

    def read(self, now_ms: int) -> Iterator[Reading]:
        """Yield (suffix of the name, kind, value); change nothing."""

    def roll(self, now_ms: int) -> None:
        """Begin the next window."""


class Sample(NamedTuple):
    """One number of one series."""

    name: str
    labels: tuple[tuple[str, str], ...]  #: sorted by label name
    kind: Kind
    value: float
    description: str


class Counter:
    """A total since the start of the process; it never goes down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def read(self, now_ms: int) -> Iterator[Reading]:
        """Yield the total."""
        yield "", "counter", self.value

    def roll(self, now_ms: int) -> None:
        """Keep counting: a total has no window."""


class Gauge:
    """A value of now: set by hand, or taken from `source` at each reading."""

    __slots__ = ("source", "value")

    def __init__(self, source: Callable[[], float] | None = None) -> None:
        self.value: float = 0
        self.source = source

    def read(self, now_ms: int) -> Iterator[Reading]:
        """Yield the value of now."""
        yield "", "gauge", self.value if self.source is None else self.source()

    def roll(self, now_ms: int) -> None:
        """Stay as it is: a value of now has no window."""


class Meter:
    """A total, and its rate per second over the window."""

    __slots__ = ("_marks", "value")

    def __init__(self, now_ms: int) -> None:
        self.value = 0
        #: (time, total) at the start of the last window and of this one
        self._marks = ((now_ms, 0), (now_ms, 0))

    def rate(self, now_ms: int) -> float:
        """Return the rate per second; a window that has just begun counts as a full one, as in Kafka."""
        since_ms, before = self._marks[0]
        return (self.value - before) * 1_000 / max(now_ms - since_ms, WINDOW_MS)

    def read(self, now_ms: int) -> Iterator[Reading]:
        """Yield rate and total."""
        yield "-rate", "gauge", self.rate(now_ms)
        yield "-total", "counter", self.value

    def roll(self, now_ms: int) -> None:
        """Let this window be the last one."""
        self._marks = (self._marks[1], (now_ms, self.value))


class IdleRatio(Meter):
    """The share of time not spent at work, 0 to 1; `value` is the time at work in ms."""

    __slots__ = ()

    def read(self, now_ms: int) -> Iterator[Reading]:
        """Yield the share."""
        yield "", "gauge", min(1.0, max(0.0, 1 - self.rate(now_ms) / 1_000))


class Window:
    """Average and maximum over the window; both 0 while nothing was recorded."""

    __slots__ = ("_count", "_last", "_max", "_sum")

    def __init__(self) -> None:
        self._count, self._sum, self._max = 0, 0.0, 0.0
        self._last = (0, 0.0, 0.0)

    def record(self, value: float) -> None:
        """Take in one value, 0 or more."""
        self._count += 1
        self._sum += value
        if value > self._max:
            self._max = value

    def read(self, now_ms: int) -> Iterator[Reading]:
        """Yield average and maximum."""
        count, total, highest = self._last
        yield "-avg", "gauge", (self._sum + total) / max(self._count + count, 1)
        yield "-max", "gauge", max(self._max, highest)

    def roll(self, now_ms: int) -> None:
        """Let this window be the last one."""
        self._last = (self._count, self._sum, self._max)
        self._count, self._sum, self._max = 0, 0.0, 0.0


def _bucket_middle(index: int) -> float:
    """Return the middle of a bucket in microseconds."""
    if index < _SMALL:
        return index
    shift = (index >> _SUB_BUCKET_BITS) - 1
    first = (index - (shift << _SUB_BUCKET_BITS)) << shift
    return first + ((1 << shift) - 1) / 2


class Histogram:
    """Quantiles and maximum over the window, of times in ms, at most 0.4 % (or 1 µs) off.

    Memory is bounded by the range of values. All are 0 while nothing was recorded.
    """

    __slots__ = ("_counts", "_last", "_last_max_ms", "_max_ms", "count")

    def __init__(self) -> None:
        #: how many values were recorded since the start
        self.count = 0
        size = ((_MICROS_MAX.bit_length() - _SUB_BUCKET_BITS) << _SUB_BUCKET_BITS) + (1 << _SUB_BUCKET_BITS)
        self._counts = [0] * size
        self._last = [0] * size
        self._max_ms = self._last_max_ms = 0.0

    def record(self, value_ms: float) -> None:
        """Take in one time, clamped to 0 … 60,000 ms."""
        if value_ms > self._max_ms:
            self._max_ms = value_ms = value_ms if value_ms < HISTOGRAM_MAX_MS else HISTOGRAM_MAX_MS
        micros = int(value_ms * 1_000)
        if micros >= _SMALL:
            shift = micros.bit_length() - 8
            micros = (shift << 7) + (micros >> shift)
        elif micros < 0:
            micros = 0
        self._counts[micros] += 1
        self.count += 1

    def quantiles(self) -> list[float]:
        """Return p50, p95, p99 and p999 in ms."""
        merged = [a + b for a, b in zip(self._counts, self._last, strict=True)]
        total = sum(merged)
        if not total:
            return [0.0] * len(_QUANTILES)
        highest = max(self._max_ms, self._last_max_ms)
        values: list[float] = []
        filled = (entry for entry in enumerate(merged) if entry[1])
        index, seen = next(filled)
        for _, share in _QUANTILES:
            rank = share * total
            while seen < rank:
                index, more = next(filled)
                seen += more
            values.append(min(_bucket_middle(index) / 1_000, highest))
        return values

    def read(self, now_ms: int) -> Iterator[Reading]:
        """Yield maximum, quantiles and the total of values."""
        yield "-max", "gauge", max(self._max_ms, self._last_max_ms)
        for (suffix, _), value in zip(_QUANTILES, self.quantiles(), strict=True):
            yield suffix, "gauge", value
        yield "-count", "counter", self.count

    def roll(self, now_ms: int) -> None:
        """Let this window be the last one."""
        self._counts, self._last = [0] * len(self._counts), self._counts
        self._last_max_ms, self._max_ms = self._max_ms, 0.0


Labels = tuple[tuple[str, str], ...]
I = TypeVar("I", bound=Instrument)  # noqa: E741


class Registry:
    """All series of a node, by name and labels.

    Requesting a series again gives the same instrument; requesting it as another sort is a bug of ours, a TypeError.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """Keep `now_ms`, a monotonic clock."""
        self._now_ms = now_ms
        self._rolled_at_ms = now_ms()
        self._series: dict[tuple[str, Labels], Instrument] = {}
        self._descriptions: dict[str, str] = {}

    def counter(self, name: str, description: str, **labels: object) -> Counter:
        """Return the counter of that name and these labels."""
        return self._get(Counter, Counter, name, description, labels)

    def gauge(self, name: str, description: str, source: Callable[[], float] | None = None, **labels: object) -> Gauge:
        """Return the gauge of that name and these labels; a `source` takes the place of an earlier one."""
        gauge = self._get(Gauge, Gauge, name, description, labels)
        if source is not None:
            gauge.source = source
        return gauge

    def meter(self, name: str, description: str, **labels: object) -> Meter:
        """Return the meter whose series are `name`-rate and `name`-total."""
        return self._get(Meter, lambda: Meter(self._now_ms()), name, description, labels)

    def idle_ratio(self, name: str, description: str, **labels: object) -> IdleRatio:
        """Return the idle ratio of that name and these labels."""
        return self._get(IdleRatio, lambda: IdleRatio(self._now_ms()), name, description, labels)

    def window(self, name: str, description: str, **labels: object) -> Window:
        """Return the window whose series are `name`-avg and `name`-max."""
        return self._get(Window, Window, name, description, labels)

    def histogram(self, name: str, description: str, **labels: object) -> Histogram:
        """Return the histogram whose series are `name`-max, -p50, -p95, -p99, -p999 and -count."""
        return self._get(Histogram, Histogram, name, description, labels)

    def remove(self, **labels: object) -> None:
        """Remove every series that carries all of these labels, such as partition=3; at least one label is needed."""
        assert labels
        wanted = set(_to_labels(labels))
        self._series = {key: found for key, found in self._series.items() if not wanted.issubset(key[1])}

    def roll(self) -> None:
        """Turn the windows if it is time; cheap to call often."""
        now_ms = self._now_ms()
        windows = (now_ms - self._rolled_at_ms) // WINDOW_MS
        if windows < 1:
            return
        self._rolled_at_ms += windows * WINDOW_MS
        for instrument in self._series.values():
            for _ in range(min(windows, 2)):
                instrument.roll(now_ms)

    def samples(self) -> Iterator[Sample]:
        """Yield every number of every series, in the order in which the series were made."""
        self.roll()
        now_ms = self._now_ms()
        for (name, labels), instrument in tuple(self._series.items()):
            for suffix, kind, value in instrument.read(now_ms):
                yield Sample(name + suffix, labels, kind, value, self._descriptions[name])

    def snapshot(self, **more: object) -> dict[str, float]:
        """Return every number under its name, with labels and `more` of them as in `num-partitions{state=active}`; fit for JSON."""
        extra = _to_labels(more)
        return {name + _to_text(sorted(labels + extra)): value for name, labels, _, value, _ in self.samples()}

    def _get(self, sort: type[I], make: Callable[[], I], name: str, description: str, labels: dict[str, object]) -> I:
        key = (name, _to_labels(labels))
        instrument = self._series.get(key)
        if instrument is None:
            instrument = self._series[key] = make()
            self._descriptions.setdefault(name, description)
        elif type(instrument) is not sort:
            raise TypeError(f"{name} is a {type(instrument).__name__} already, not a {sort.__name__}")
        assert isinstance(instrument, sort)
        return instrument


def _to_labels(labels: dict[str, object]) -> Labels:
    return tuple(sorted((name, str(value)) for name, value in labels.items()))


def _to_text(labels: Sequence[tuple[str, str]]) -> str:
    return f"{{{','.join(f'{label}={text}' for label, text in labels)}}}" if labels else ""
