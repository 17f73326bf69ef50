"""The queries of the page and their answers: all numbers are those of the command line's `--json`.

Each view says at which moment it was true, `as_of_ms` in ms since 1970: of lists that of all parts about which `unknown` says nothing,
since it names the moment of each other one. A value that could not be asked for is None, with the reason beside it.
Names are those that users chose: up to 249 characters for a topic, more for a group, with any text in them, markup too.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

from holdfast.records.share.group_lag import Row

#: Rows of one page of groups, topics and share partitions of one of a group, and rows of each list of one of the cluster.
ROWS_PER_PAGE: Final = 200
#: Sentences of one sort about what is not known, such as one for each log partition.
SENTENCES_MAX: Final = 50
#: Minutes of a sparkline, one number each.
SPARK_MINUTES: Final = 60
#: Bytes of a key, of a value, and of all headers together that are given.
RECORD_BYTES_MAX: Final = 64 << 10
#: Changes of a timeline that are given, the newest ones.
CHANGES_MAX: Final = 500


class PageRefused(Exception):
    """A question that has no answer: one sentence with what to do."""

    def __init__(self, status: int, text: str, nearest: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        #: The status of an HTTP answer: 400 a wrong question, 403 denied, 404 no such thing, 410 gone by now, 502 a broker is silent,
        #: 503 still starting.
        self.status = status
        self.text = text
        #: Names that exist and are spelled much alike.
        self.nearest = nearest


class GroupRow(NamedTuple):
    """A share group and one of its topics, summed over the share partitions."""

    group: str
    topic: str | None  #: None: the cluster knows no topic of the id any more, or does not say
    topic_id: str
    share_partitions: int
    lag: int | None  #: None: unknown of one of them at least
    lag_known: int  #: of those whose lag is known
    lag_unknown: Mapping[str, int]  #: share partitions by the reason
    in_flight: int
    given_up: int  #: archived, from the start offsets on
    delivery_count_max: int
    oldest: OldestUnfinished | None  #: None: all is finished, as far as is known
    rate_per_s: (
        float | None
    )  #: records finished for each second of the last whole minute; None: nobody read or counted all of it
    #: The last `SPARK_MINUTES`, oldest first, with the minute that goes on at the end. None: as above.
    finished_by_minute: tuple[int | None, ...]
    is_old: bool = False  #: a part of it is as it was some time ago, for a reason that the view tells


class OldestUnfinished(NamedTuple):
    """The record of a group and topic that waits longest, of those that are there and whose times are known."""

    partition: int
    offset: int
    written_ms: int | None  #: None: not known of any
    unknown: int = 0  #: share partitions whose oldest record has no known time, so that it may be older


class GroupsPage(NamedTuple):
    """Groups and their topics, those first that need attention: by highest delivery count, oldest unfinished, and lag."""

    as_of_ms: int
    rows: tuple[GroupRow, ...]
    next: str | None  #: the cursor of the next page; None: this is the last one
    rows_in_all: int  #: that have the part of a name that was asked for
    unknown: tuple[str, ...]  #: what keeps the list or its numbers from being whole, in sentences


class HeldRange(NamedTuple):
    """Offsets that a member of a gateway holds under one lock."""

    topic_id: str
    partition: int
    first_offset: int
    last_offset: int  #: inclusive
    member_id: str | None
    delivery_count: int
    until_ms: int  #: when the lock ends, in ms since 1970
    is_answered: bool  #: an acknowledgement is on its way into the log
    topic: str | None = None  #: None: its name is not known


class MemberView(NamedTuple):
    """A member of a share group."""

    member_id: str
    client_id: str
    client_host: str
    member_epoch: int
    topics: tuple[str, ...]  #: some of those that it subscribes to
    topics_in_all: int
    partitions: int  #: that it is assigned


class HoldingsView(NamedTuple):
    """The members of a group of a gateway, and ranges that they hold; both bounded."""

    as_of_ms: int
    members: tuple[MemberView, ...]
    members_in_all: int
    held: tuple[HeldRange, ...]
    held_in_all: int  #: ranges
    records_held: int


class GroupView(NamedTuple):
    """A share group: its sums as `groups describe --json` has them, and share partitions as that lists them, in its order."""

    as_of_ms: int
    group: str
    totals: Mapping[str, Any]  #: `LagTotals.data`
    topics: tuple[GroupRow, ...]  #: those first that need attention
    states: tuple[Row, ...]
    next: str | None  #: the cursor of the next topics and share partitions; None: these are the last ones
    unknown: tuple[str, ...]
    holdings: HoldingsView | None = None  #: None: no gateway serves the group here
    #: Log partitions of these `states` that are as they were some time ago, for a reason that `unknown` tells.
    old: tuple[int, ...] = ()
    is_old: bool = False  #: a part of the group is


class StateRange(NamedTuple):
    """Offsets that have one delivery state and count."""

    first_offset: int
    last_offset: int  #: inclusive
    state: str  #: available, acknowledged, archiving or archived
    delivery_count: int


class WindowView(NamedTuple):
    """A share partition and what its state says of each offset from the start offset on.

    The state says nothing of the offsets between ranges and after the last one: they were never given out, or for the first
    time and are not answered yet.
    """

    as_of_ms: int
    group: str
    topic: str | None
    topic_id: str
    partition: int
    row: Row  #: as in `GroupView.states`: offsets, epochs, counts, lag
    start_offset: int | None  #: None: not decided yet
    state_end_offset: int | None  #: after the last range
    ranges: tuple[StateRange, ...]  #: ascending, without overlaps
    log_start: int | None  #: of the partition of the topic
    log_end: int | None
    log_unknown: str  #: why the two are not known; empty when they are
    unknown: tuple[str, ...] = ()  #: why `as_of_ms` is long ago, in sentences; empty: it is not
    holdings: HoldingsView | None = None  #: of this share partition; None: no gateway serves the group here


#: The sources of changes: the log, and the history of it that the compaction job keeps.
LOG: Final = "log"
HISTORY: Final = "history"


class Change(NamedTuple):
    """A change of an offset, by one record of the log."""

    at_ms: int
    state: str  #: as in `StateRange`; or untold, finished (below the start offset), deleted
    delivery_count: int | None  #: None: the record does not say, as of what is finished
    text: str  #: what became of it, for people
    owner_epoch: int | None  #: None: brokers write none
    state_epoch: int
    log_partition: int
    log_offset: int
    source: str = LOG  #: or `HISTORY`


class HistoryView(NamedTuple):
    """The part of a timeline that was read in a history, because the log does not reach back so far."""

    place: str  #: directory or URI
    from_ms: (
        int | None
    )  #: when the first record was written that it has of the share partition; None: it has none, or was not read
    from_offset: int | None  #: of the same, in the log partition
    to_offset: int  #: of the log partition, exclusive: from there on the log was read
    problem: str  #: why it was not read, a sentence; empty: it was


class TimelineView(NamedTuple):
    """The changes of an offset, oldest first."""

    as_of_ms: int
    group: str
    topic: str | None
    topic_id: str
    partition: int
    offset: int
    now: Change | None  #: the last change; None: nothing was ever written about it
    changes: tuple[Change, ...]
    log_topic: str
    log_partition: int
    reaches_to_offset: int  #: of the log: nothing below it was read
    reaches_to_ms: int | None  #: of the first record that is there; None: there is none
    unknown: tuple[str, ...]
    history: HistoryView | None = None  #: None: none is named, or none was needed
    is_old: bool = False  #: `as_of_ms` is some time ago, for the reason that is the first one of `unknown`


class Part(NamedTuple):
    """A key, a value or a header's value, cut where it is long."""

    data: bytes
    size_bytes: int  #: of all of it

    @property
    def is_whole(self) -> bool:
        """Tell whether nothing was cut off."""
        return len(self.data) == self.size_bytes


class RecordView(NamedTuple):
    """A record of a user's topic."""

    as_of_ms: int
    topic: str
    partition: int
    offset: int
    written_ms: int
    key: Part | None  #: None: it has none
    value: Part | None
    headers: tuple[tuple[str, Part | None], ...]
    headers_in_all: int


class LogPartitionView(NamedTuple):
    """One partition of the state topic, and how far it is read."""

    partition: int
    leader: int | None  #: id of a broker; None: it has none, or that is not known
    start_offset: int | None
    end_offset: int | None
    read_to: int  #: the next offset to read
    states: int  #: share partitions in it
    problem: str  #: why it is not read on now; empty: nothing is wrong
    as_of_ms: int | None = None  #: when the states in it were as they are shown; None: nothing was read yet
    owner: str | None = None  #: the node that serves it, by the log; None: none is known, or none is needed
    condition: str = ""  #: of a node's log partition: active, loading, alarmed, elsewhere, …


class BrokerView(NamedTuple):
    """A broker of the cluster."""

    broker_id: int
    address: str
    silent_ms: int | None = None  #: since its last answer to the node; None: not known, or not measured


class NodeView(NamedTuple):
    """One of the nodes that divide the state topic."""

    node_id: str
    address: str | None  #: None: it is absent
    condition: str  #: member, absent, rejoining, static, …
    log_partitions: tuple[int, ...]  #: some of those that the division gives it
    duties: tuple[str, ...]
    log_partitions_in_all: int


class ReaderView(NamedTuple):
    """A registered reader of the state topic, such as the job that folds it."""

    group: str
    condition: str
    behind: int | None  #: offsets that it has not read; None: not known
    still_ms: int | None  #: for how long it has not moved


class HandOverView(NamedTuple):
    """A log partition that got another owner."""

    at_ms: int
    log_partition: int
    from_node: str | None  #: None: the log had no owner
    to_node: str
    owner_epoch: int
    generation: int  #: under which it was taken
    load_ms: int | None  #: from the start of the load to serving; None: the new owner did not say
    why: str | None  #: None: not known


class ClusterView(NamedTuple):
    """The cluster that is read; its lists are given in parts, all by one cursor."""

    as_of_ms: int
    bootstrap: str
    cluster_id: str  #: empty: not known
    state_topic: str
    brokers: tuple[BrokerView, ...]
    log_partitions: tuple[LogPartitionView, ...]
    problems: tuple[str, ...]
    nodes: tuple[NodeView, ...] = ()  #: none, where no node of ours serves it
    readers: tuple[ReaderView, ...] = ()
    hand_overs: tuple[HandOverView, ...] = ()  #: those that nodes remember, newest first
    brokers_in_all: int = 0  #: of all parts, as below
    log_partitions_in_all: int = 0
    nodes_in_all: int = 0
    readers_in_all: int = 0
    hand_overs_in_all: int = 0
    next: str | None = None  #: the cursor of the next part of each list; None: this is the last one


class PageSource(Protocol):
    """A source of all that the page shows; each method raises PageRefused where there is no answer."""

    async def groups(self, after: str | None = None, name: str | None = None) -> GroupsPage:
        """Return groups, at most `ROWS_PER_PAGE`.

        Args:
            after: the cursor of the page before.
            name: a part of the group's or the topic's name, in large or small letters.
        """

    async def group(self, group: str, after: str | None = None) -> GroupView:
        """Return a group, at most `ROWS_PER_PAGE` of its topics and of its share partitions."""

    async def window(self, group: str, topic: str, partition: int) -> WindowView:
        """Return a share partition; the topic by its name or its id."""

    async def timeline(self, group: str, topic: str, partition: int, offset: int) -> TimelineView:
        """Return what became of an offset."""

    async def record(self, topic: str, partition: int, offset: int) -> RecordView:
        """Return a record of a user's topic."""

    async def cluster(self, after: str | None = None) -> ClusterView:
        """Return the cluster, at most `ROWS_PER_PAGE` of each list."""

    def audience(self) -> str:
        """Return a text that is the same for readers who are shown the same."""

    def changed(self) -> AsyncIterator[None]:
        """Yield when what the audience is shown may have changed, at most once a second."""


def some_of(sentences: Sequence[str]) -> tuple[str, ...]:
    """Return sentences of one sort, at most `SENTENCES_MAX`, and how many others there are."""
    more = len(sentences) - SENTENCES_MAX
    return (*sentences[:SENTENCES_MAX], *([f"{more} more of these are not named here."] if more > 0 else ()))


def utc(time_ms: int) -> str:
    """Return a time to the second, as sentences have it; one that no calendar has is its number."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


def to_json(view: object) -> Any:  # noqa: ANN401
    """Return a view, or part of one, as JSON has it; bytes in base64."""
    if isinstance(view, Part):
        return {
            "base64": b64encode(view.data).decode(),
            "size_bytes": view.size_bytes,
            "is_whole": view.is_whole,
        }
    if isinstance(view, GroupView):
        rest = {name: to_json(value) for name, value in view._asdict().items() if name != "totals"}
        return dict(view.totals) | rest | {"topics_in_detail": rest["topics"], "topics": view.totals["topics"]}
    if isinstance(view, tuple):
        names = getattr(view, "_fields", None)
        if names is None:
            return [to_json(each) for each in view]
        return {name: to_json(value) for name, value in zip(names, view, strict=True)}
    if isinstance(view, Mapping):
        return {str(name): to_json(value) for name, value in view.items()}
    return view
