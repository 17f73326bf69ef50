"""The registry as Prometheus text or OpenMetrics, in pieces that each take a small part of a millisecond.

`prometheus_client` writes the text, from a collector that holds one piece; the sender can do other work between two pieces.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from holdfast.metrics.instruments import BUCKETS_MS, Counter, Gauge, Histogram, Instrument
from holdfast.metrics.negotiation import preferred_format
from holdfast.metrics.registry import Family, Labels, Registry

#: Lines of one piece, at least: 0.1 ms. Each piece costs every request in flight one such turn of the loop.
_PIECE_LINES_MIN: Final = 8
#: Pieces of all metrics, about: a reader of very many does not wait for more turns than these.
_PIECES_MAX: Final = 1_000
#: The label of each bucket: its upper end in seconds.
_ENDS: Final = (*(str(upper_ms / 1_000) for upper_ms in BUCKETS_MS), "+Inf")
_KINDS: Final[Mapping[type, str]] = {Counter: "counter", Gauge: "gauge", Histogram: "histogram"}


class Exposition(NamedTuple):
    """A text of all metrics, not written yet."""

    content_type: str
    #: Each is written when it is requested; what changes meanwhile is in later ones.
    pieces: Iterator[bytes]


def expose(registry: Registry, accept: str) -> Exposition:
    """Return all metrics in the best of the formats that a header `Accept` names; Prometheus text where it names none."""
    encode, content_type = choose_encoder(preferred_format(accept))
    return Exposition(content_type, _write(registry, encode))


class _Piece(Collector):
    """A part of one family, as `prometheus_client` collects it."""

    def __init__(self, family: Family, series: list[tuple[Labels, Instrument]]) -> None:
        self._family = family
        self._series = series

    def collect(self) -> list[Metric]:
        """Return the part, read now."""
        name, sort, description, divisor, _ = self._family
        metric = Metric(name.removesuffix("_total") if sort is Counter else name, description, _KINDS[sort])
        for labels, instrument in self._series:
            if isinstance(instrument, Histogram):
                _add_buckets(metric, name, dict(labels), instrument)
            else:
                assert isinstance(instrument, Counter | Gauge)
                metric.add_sample(name, dict(labels), instrument.read() / divisor)
        return [metric]


def _add_buckets(metric: Metric, name: str, labels: dict[str, str], histogram: Histogram) -> None:
    cumulative = 0
    for end, count in zip(_ENDS, histogram.counts, strict=True):
        cumulative += count
        metric.add_sample(f"{name}_bucket", labels | {"le": end}, cumulative)
    metric.add_sample(f"{name}_count", labels, cumulative)
    metric.add_sample(f"{name}_sum", labels, histogram.sum_ms / 1_000)


def _write(registry: Registry, encode: Callable[[Collector], bytes]) -> Iterator[bytes]:
    end = encode(_Nothing())
    families = registry.families()
    piece_lines = max(_PIECE_LINES_MIN, sum(len(family.series) for family in families) // _PIECES_MAX)
    for family in families:
        series, lines = list(family.series), len(BUCKETS_MS) + 3 if family.sort is Histogram else 1
        step = max(1, piece_lines // lines)
        head = b""
        for first in range(0, len(series), step):
            # A series that vanishes meanwhile, because another node has its partition now, is skipped.
            part = [(found, family.series[found]) for found in series[first : first + step] if found in family.series]
            text = encode(_Piece(family, part)).removesuffix(end)
            if not head:
                head = b"".join(line for line in text.splitlines(keepends=True) if line.startswith(b"#"))
                yield head
            yield text.removeprefix(head)
    yield end


class _Nothing(Collector):
    """A registry without metrics."""

    def collect(self) -> list[Metric]:
        """Return none."""
        return []
