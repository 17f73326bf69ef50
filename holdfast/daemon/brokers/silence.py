"""How long the brokers that the log needs have been silent, and what is said about it.

A broker is silent while no answer of it comes on any connection of this node, whatever the request: one that is gone, and one that is
frozen and takes connections. Time in which this process itself did not run says nothing about brokers, and does not count.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple

import structlog

from holdfast.metrics.registry import Registry

_log = structlog.get_logger(__name__)

#: While it lasts, a silence is logged so often at most, by its three events together.
_REPORT_INTERVAL_S: Final = 60.0
#: So many brokers and log partitions are named; the rest is counted.
_NAMED_MAX: Final = 5

_GAUGE: Final = "broker_silence_ms"


class _Quiet(NamedTuple):
    """One broker, or the lack of one."""

    #: When the newest answer came.
    heard_s: float | None
    #: How long this process has been awake since.
    quiet_s: float
    #: The time of day of that answer, or at which one was needed first.
    since_s: float


class BrokerSilence:
    """Judges, look by look, whether the log partitions can be served; `look` is called at least every `interval_s`."""

    def __init__(
        self, max_ms: int, interval_s: float, doubt_s: float, registry: Registry, wall_s: Callable[[], float]
    ) -> None:
        """Begin without any broker.

        Args:
            max_ms: a leader that is silent for longer keeps its log partitions from being served.
            interval_s: between two looks, when this process has its turns.
            doubt_s: of a leader that is silent for longer, lines of other parts about it are left out.
            registry: gets the silence of each broker that leads a log partition.
            wall_s: returns the time of day, in seconds.
        """
        #: Why the log cannot be served now; empty while it can.
        self.problem = ""
        #: Log partitions that no broker leads which answers: none of their calls is answered meanwhile.
        self.cut_off: frozenset[int] = frozenset()
        self._max_s = max_ms / 1_000
        self._awake_max_s = 2 * interval_s
        self._doubt_s = doubt_s
        self._registry = registry
        self._wall_s = wall_s
        self._looked_s: float | None = None
        #: Those that the log needs.
        self._brokers: dict[int, _Quiet] = {}
        #: At the last look.
        self._leaders: Mapping[int, int] = {}
        #: The log partitions without a leader.
        self._leaderless: dict[int, _Quiet] = {}
        #: How long the present silence has lasted; 0: there is none.
        self._silent_s = 0.0
        #: The time of day of the last answer before it, once it was logged.
        self._since_s = 0.0
        #: When the present silence was logged last.
        self._reported_s: float | None = None
        #: Lines of other parts that were left out since the last line about a silence.
        self._left_out = 0

    def look(
        self,
        now_s: float,
        leaders: Mapping[int, int],
        partition_count: int,
        brokers: Collection[int],
        heard: Callable[[int], float | None],
        next_try_s: float,
        why_leaderless: str = "",
    ) -> None:
        """Take in the state of the brokers.

        Args:
            now_s: monotonic.
            leaders: the leading broker of each log partition that has one, as last known.
            partition_count: how many log partitions there are.
            brokers: all that are known; while a log partition has no leader, each may become it.
            heard: returns when a broker has answered last, by the same clock; None: it never did.
            next_try_s: how soon silent brokers are queried again.
            why_leaderless: why no broker leads any log partition, as brokers say, a clause; empty: they do not.
        """
        awake_s = 0.0 if self._looked_s is None else min(now_s - self._looked_s, self._awake_max_s)
        self._looked_s = now_s
        self._leaders = leaders
        lacking, no_leader = _Quiet(None, -awake_s, self._wall_s()), set(range(partition_count)) - leaders.keys()
        self._leaderless = {
            partition: quiet._replace(quiet_s=quiet.quiet_s + awake_s)
            for partition in no_leader
            for quiet in (self._leaderless.get(partition, lacking),)
        }
        needed = {*leaders.values(), *brokers} if self._leaderless else set(leaders.values())
        self._take_brokers(needed, now_s, awake_s, heard)
        silent = {broker: quiet for broker, quiet in self._brokers.items() if quiet.quiet_s > self._max_s}
        leaderless = {partition: quiet for partition, quiet in self._leaderless.items() if quiet.quiet_s > self._max_s}
        led = [partition for partition, broker in leaders.items() if broker in silent]
        is_all_silent = bool(silent) and len(silent) == len(self._brokers)
        # A log partition that lost its leader with the last answer is cut off no later than those that still name one.
        self.cut_off = frozenset(range(partition_count) if is_all_silent else (*led, *leaderless))
        leading = {leaders[partition] for partition in led}
        quiets = [*silent.values(), *leaderless.values()]
        longest_s = max((quiet.quiet_s for quiet in quiets), default=0.0)
        if quiets and self._reported_s is None:
            self._since_s = min(quiet.since_s for quiet in quiets)
        if is_all_silent:
            self._report("brokers_lost", now_s, longest_s, next_try_s, brokers=named(silent))
            self.problem = f"no broker answers, for {longest_s:.0f} s; queried {_some('broker', silent)}"
        elif led:
            self._report("broker_lost", now_s, longest_s, next_try_s, brokers=named(leading), leads=named(led))
            who, what = _some("broker", leading), _some("log partition", led)
            self.problem = f"{who} did not answer for {longest_s:.0f} s, and {_verb(leading)} {what}"
        elif leaderless:
            why = {"why": why_leaderless} if why_leaderless else {}
            self._report("leaders_lost", now_s, longest_s, next_try_s, partitions=named(leaderless), **why)
            cause = f"{why_leaderless}: " if why_leaderless else ""
            self.problem = f"{cause}no broker has led {_some('log partition', leaderless)} for {longest_s:.0f} s"
        else:
            self.problem = ""
            if self._reported_s is not None:
                silent_ms = round(1_000 * (self._silent_s + awake_s))
                _log.info("brokers_recovered", silent_ms=silent_ms, **self._count_left_out())
            elif self._left_out and not self._is_doubted(None):
                _log.warning("broker_answers_missed", **self._count_left_out())
            self._reported_s = None
            self._silent_s = 0.0

    def quiet_s(self, broker: int) -> float:
        """Return how long a broker that the log needs has been silent, as of the last look."""
        quiet = self._brokers.get(broker)
        return 0.0 if quiet is None else quiet.quiet_s

    def leader_quiet_s(self, partition: int) -> float:
        """Return how long the broker that leads a log partition has been silent, as of the last look; 0: it has no leader."""
        return self.quiet_s(self._leaders.get(partition, -1))

    def leader_unheard_since_s(self, partition: int) -> float | None:
        """Return the time of day since which no broker that leads a log partition has answered; None: one had no time for an answer yet."""
        quiet = self._quiet(partition)
        return quiet.since_s if quiet is not None and quiet.quiet_s > self._doubt_s else None

    def leave_out(self, partition: int | None) -> bool:
        """Return whether a line about the effects of a silent broker is left out, and count it if so; see `LineLimiter.leave_out`."""
        is_effect = self._is_doubted(partition)
        self._left_out += is_effect
        return is_effect

    def _is_doubted(self, partition: int | None) -> bool:
        if partition is None:
            quiets = [*self._brokers.values(), *self._leaderless.values()]
        else:
            quiet = self._quiet(partition)
            quiets = [] if quiet is None else [quiet]
        return any(quiet.quiet_s > self._doubt_s for quiet in quiets)

    def _quiet(self, partition: int) -> _Quiet | None:
        return self._leaderless.get(partition) or self._brokers.get(self._leaders.get(partition, -1))

    def _count_left_out(self) -> dict[str, int]:
        left_out, self._left_out = self._left_out, 0
        return {"left_out": left_out} if left_out else {}

    def _quiet_ms(self, broker: int) -> float:
        return round(1_000 * self.quiet_s(broker))

    def _take_brokers(
        self, needed: set[int], now_s: float, awake_s: float, heard: Callable[[int], float | None]
    ) -> None:
        for broker in self._brokers.keys() - needed:
            del self._brokers[broker]
            self._registry.remove(broker=broker)
        for broker in needed:
            heard_s, before = heard(broker), self._brokers.get(broker)
            if before is None:
                self._brokers[broker] = _Quiet(heard_s, 0.0, self._wall_s())
                watch_broker(self._registry, broker, partial(self._quiet_ms, broker))
            elif heard_s is not None and heard_s != before.heard_s:
                ago_s = max(0.0, now_s - heard_s)
                self._brokers[broker] = _Quiet(heard_s, min(ago_s, awake_s), self._wall_s() - ago_s)
            else:
                self._brokers[broker] = before._replace(quiet_s=before.quiet_s + awake_s)

    def _report(self, event: str, now_s: float, longest_s: float, next_try_s: float, **fields: str) -> None:
        self._silent_s = max(self._silent_s, longest_s)
        if self._reported_s is not None and now_s - self._reported_s < _REPORT_INTERVAL_S:
            return
        self._reported_s = now_s
        _log.error(
            event,
            since=datetime.fromtimestamp(self._since_s, UTC).isoformat(timespec="seconds"),
            silent_ms=round(1_000 * longest_s),
            again_in_ms=round(1_000 * next_try_s),
            **fields,
            **self._count_left_out(),
        )


def watch_broker(registry: Registry, broker: int, source: Callable[[], float]) -> None:
    """Show the silence of a broker that the log needs."""
    registry.gauge(_GAUGE, "Time since the last answer of a broker that the log needs.", source, broker=broker)


def named(numbers: Iterable[int], named_max: int = _NAMED_MAX) -> str:
    """Return numbers in order; of more than `named_max` the first, and how many more there are."""
    ordered = sorted(numbers)
    more = f" and {len(ordered) - named_max} more" if len(ordered) > named_max else ""
    return ", ".join(map(str, ordered[:named_max])) + more


def _verb(numbers: Collection[int]) -> str:
    return "lead" if len(numbers) > 1 else "leads"


def _some(noun: str, numbers: Iterable[int]) -> str:
    ordered = sorted(numbers)
    return f"{noun}{'s' if len(ordered) > 1 else ''} {named(ordered)}"
