"""What the log protocol is made of: its rules, the bounds of a search, and the world in which it runs.

What is abstracted, and why nothing is lost by it:

- A key's state is the tuple of write ids applied to it, so any state machine (register, counter, delta merge) is a
  function of it.
- Appends in flight sit in one queue per checkpoint attempt; one that is never scheduled is one that never landed.
- A crash, a freeze followed by NOT_COORDINATOR, and an ambiguous append failure are one action (`stop`): memory goes,
  what is in flight stays.
- A retry by a client is a new write; the failed one stays open for ever and may or may not have taken effect.
- A tail reads all there is at once; reading less is the same as having read earlier.
- An alarm that an admin ends by an accepting checkpoint is a take-over by a node that stops at once.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

State = tuple[int, ...] | None


@dataclass(frozen=True)
class Rules:
    """The repaired protocol is the default. Every other value is the design as first written, or a mutant."""

    answer: str = "tail"  # a write is answered when the tail has passed it | "append": when it is sent
    epoch_check: bool = True  # the tail stops at a higher checkpoint
    load_until: str = "own"  # own checkpoint | "hw": the high watermark seen at the start of the load
    equal: str = "first"  # of two checkpoints with one epoch the first counts | "both"
    own_by: str = "nonce"  # own checkpoint is known by a number unique to the attempt | "node": by epoch and node id
    tail_match: str = "record"  # the tail compares the record itself | "offset": only predicted offset and epoch
    seq: bool = True  # records are numbered within their epoch; after a gap nothing of the epoch counts
    refresh: str = "same"  # a refresh keeps epoch and nonce | "bump": takes epoch + 1 and writes on at once
    read: str = "listoffsets"  # read index | "none" | "barrier": a record of its own, passed by the tail
    recordless: str = "read"  # an answer without records waits as a read does | "parked": only for earlier writes
    prune_at: str = "own"  # latest own checkpoint the tail has passed as counting | "any_checkpoint" | "any"
    basis: str = "log"  # what replaces a pruned record: a snapshot in the log | "topic": or in the snapshot topic
    load_snaps: bool = False  # a load uses the snapshot topic
    snap_key: str = "key"  # message key of the snapshot topic | "versioned": (key, covered offset)
    marker: bool = True  # with basis "topic" a deleted key needs its deletion marker there before it is pruned
    scan: str = "chase"  # read the snapshot topic until its end is where one stands | "once": to the end first seen
    snap_after_start: bool = True  # snapshot topic's end is asked after the log start is known
    no_base: str = "unknown"  # an update without its base is skipped | "fold": applied to nothing
    job_epoch_rule: bool = True  # the compaction job applies the epoch rule
    out_of_range: str = "afresh"  # a load that falls behind the log start starts again | "go on": from there
    # Where a reader begins in a log whose start may have fallen back behind a cut: "start", at the log start | "named": at the
    # checkpoint that a later one names as the cut, if it is the one before it in the reading | "counted": the same, but a
    # claim of the epoch that was lost hides its owner | "kept": at the log start come what may | "state": as "named", but
    # the state of what lies below the cut is kept | "any": at the cut that any checkpoint names.
    beginning: str = "start"
    rewrites: bool = True  # an owner writes again what another program deleted
    naming: str = "covered"  # a cut is named when all that it takes has its replacement | "early": before
    # Who may take the partition: at any time "anyone" (safety must not rest on it) | "generation": while the winner's
    # generation is lower than one's own, or the winning checkpoint is one's own node's | "not_newer" | "lower_only".
    take_by: str = "anyone"
    generation: str = "highest"  # a checkpoint carries the highest of own and winner's | "own": its own, come what may
    # What the leader of a group hands out with the partition: 1 + the highest that any member has "seen", in assignments and
    # in logs | "group": Kafka's number of the group's generation, which falls back to 1 when the group is forgotten.
    hands_out: str = "seen"
    rejoins: bool = True  # a member that meets a generation in the log that is not below its own asks for a rebalance


REPAIRED = Rules()
DESIGN = Rules(
    own_by="node",
    tail_match="offset",
    seq=False,
    recordless="parked",
    basis="topic",
    load_snaps=True,
    marker=False,
    scan="once",
    no_base="fold",
)
VERSIONED = Rules(basis="topic", load_snaps=True, snap_key="versioned")
GENERATION = Rules(take_by="generation")
FALLBACK = Rules(beginning="named")


class Left(NamedTuple):
    """How often each thing may still happen."""

    take: int = 2
    write: int = 2
    delete: int = 0
    read: int = 0
    stop: int = 0
    refresh: int = 0
    cold: int = 0  # owner writes a snapshot of a cold key into the log
    prune: int = 0
    name: int = 0  # a refresh of the owner that names the cut it will ask for
    wipe: int = 0  # another program deletes records, whoever needs them
    told: int = 0  # a broker tells a load a log start that is none
    fallback: int = 0  # the log start falls back behind a cut, because a broker that is lost had not written it down
    drop: int = 0  # an append that never lands while later ones of its producer do
    job: int = 0
    zombie: int = 0  # a stale or replayed job writes an old snapshot
    fresh: int = 0  # the job loses its state and starts at the log start
    compact: int = 0
    start: int = 0  # a process starts anew, with a generation above some reading of the log
    join: int = 0  # membership gives the partition to a node
    forget: int = 0  # all nodes are gone for so long that Kafka forgets the group, and others come
    force: int = 0  # an admin makes a node take the partition whoever may
    kill: int = 0  # the job is killed before its batch is committed, and folds again from where that began
    null: int = 0  # the owner removes a message of the snapshot topic
    corrupt: int = 0  # a job writes an entry with wrong content
    again: int = 0  # the state topic is deleted and recreated under its name
    unclean: int = 0  # a broker loses the last record below the watermark


@dataclass(frozen=True)
class Scope:
    """The bounds of one search."""

    left: Left
    nodes: int = 2
    keys: int = 1
    hw_lag: bool = False  # landed is not yet committed; what is above the high watermark may be lost
    stale_leader: bool = False  # ListOffsets may be answered by a broker that no longer leads
    lag: bool = True  # compaction never outruns a load in progress (min.compaction.lag and delete.retention hold)
    warm: bool = False  # a node may read ahead before it takes its checkpoint
    cold: bool = True  # a node may take its checkpoint before it has read anything
    ignore: str = ""  # "I8": go on after it, to see what else it leads to
    jobs: int = 1
    direct: bool = False  # an append lands and is read back at once, so that nothing is in flight
    torn: bool = False  # a load reads the snapshot topic message by message


class Rec(NamedTuple):
    """A record of the log."""

    kind: str  # C checkpoint, D update, S snapshot, T tombstone, B barrier
    epoch: int
    seq: int
    nonce: int  # which checkpoint attempt; on C part of the record, elsewhere for the checker only
    node: int
    key: int = -1
    wid: int = -1
    post: State = None  # S: the state; D: for the checker, the state its writer believed it leads to
    generation: int = 0  # on C
    cut: int = -1  # on C: all that is needed stands there or behind; -1: nothing is said


class Reader(NamedTuple):
    """What any reader of the log carries along."""

    cur: int
    nonce: int
    next: int
    kv: tuple[State, ...]
    cov: tuple[int, ...]  # per key: offset up to which a loaded snapshot covers it
    node: int = -1  # of the winning checkpoint
    generation: int = 0  # of the winning checkpoint
    ck: int = -1  # offset of the newest checkpoint that counts
    begin: int = 0  # where the log is whole from; -1: not found yet


class Parked(NamedTuple):
    """A record that was sent and not yet read back by the tail."""

    rec: Rec
    pred: int  # predicted offset
    floor: int  # read floor of a barrier, or -1


class ParkedRead(NamedTuple):
    """An answer that waits for the tail to reach its read index."""

    key: int
    floor: int
    read_index: int


class Entry(NamedTuple):
    """A message of the snapshot topic: the state of one key after the record at offset `covered`."""

    topic: int  # id of the state topic
    key: int
    covered: int
    val: State  # None: the entry says that the key is deleted
    gone: bool = False  # a null: it only removes the entry


class Manifest(NamedTuple):
    """A message of the snapshot topic: the exact set of live keys, and a reader's position, after the record at `o`."""

    topic: int
    o: int
    epoch: int
    nonce: int
    next: int
    node: int
    generation: int
    live: frozenset[tuple[int, int, State]]  # the sum over (key, covered, content); its size is the count
    gone: bool = False
    ck: int = -1  # offset of the newest checkpoint at or below `o`


Message: TypeAlias = Entry | Manifest


class Job(NamedTuple):
    """The state of one compaction job."""

    topic: int
    pos: int  # -1: not yet known where the log starts
    rd: Reader
    waits: frozenset[int]  # keys with an update whose base was not read
    covered: tuple[int, ...]  # per key: its last counting record
    o: int  # the last counting record of all
    complete_at: int  # from here on every live key has been read
    checkpoints: int  # that count, read so far (rule "checkpoint")
    remembered: frozenset[int]  # keys that the snapshot topic had when the job started afresh (rule "cleaned")
    queue: tuple[Message, ...] = ()  # of the batch in flight
    saved: "Job | None" = None  # before the batch in flight
    last: "Rec | None" = None  # the record before `pos`; None where nothing was read yet


class Node(NamedTuple):
    """The memory of one node."""

    st: str  # idle, own, scan (snapshot topic), pick, record, read (log), active; start: only in a mutant
    rd: Reader
    epoch: int = 0
    nonce: int = -1  # -1 while reading ahead for a warm hand-over
    pos: int = 0
    goal: int = 0
    scan: int = 0
    end: int = 0
    seq: int = 0
    pred: int = 0  # predicted offset of the next append
    ck: int = -1  # own latest checkpoint that the tail has passed
    pend: tuple[Parked, ...] = ()
    reads: tuple[ParkedRead, ...] = ()
    generation: int = 1
    own: int = -1  # where its own checkpoint lies, as the delivery report says
    cut: int = -1  # the newest cut that it named, and that the tail has passed
    seen: tuple[Message, ...] = ()  # read of the snapshot topic so far
    base: Manifest | None = None  # what the load starts from


class Snap(NamedTuple):
    """An entry of the snapshot topic."""

    key: int
    covered: int
    val: State


class World(NamedTuple):
    """Everything there is at one moment."""

    log: tuple[Rec, ...]
    hw: int
    start: int
    nodes: tuple[Node, ...]
    chans: tuple[tuple[int, tuple[Rec, ...]], ...]  # ((nonce, records in flight), ...)
    dels: tuple[int, ...]  # DeleteRecords in flight
    snaps: tuple[Snap | None, ...]
    job: tuple[int, Reader]  # (position, reader)
    floor: int  # prefix that every later answer must reflect
    early: tuple[tuple[int, int], ...]  # (key, wid) answered before being in the log (mutant only)
    left: Left
    topic_id: int = 0  # of the state topic
    topic: tuple[Message | None, ...] = ()  # the snapshot topic with manifests
    nulls: tuple[Message, ...] = ()  # removals in flight
    jobs: tuple[Job, ...] = ()
    group: int = 1  # Kafka's number of the group's generation


class Violation(Exception):
    """An invariant does not hold; the text begins with its number."""


def show(rec: Rec) -> str:
    """Describe a record in the labels of a trace."""
    what = {"C": f"checkpoint node {rec.node}", "B": "barrier"}.get(rec.kind, f"{rec.kind} k{rec.key} w{rec.wid}")
    return f"[{what} epoch {rec.epoch}/{rec.seq}]"
