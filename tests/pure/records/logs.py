"""Logs as coordinators leave them: owners, zombies, gaps, deletions, both codecs, other programs' records, cuts."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from hypothesis import strategies as st

from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, encode_checkpoint
from holdfast.records.log.header import encode_header
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.combining import combine
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState, replay
from holdfast.records.share.snapshot_store import folding
from holdfast.records.share.snapshot_store.folding import RawRecord
from holdfast.records.share.values import Snapshot, Update, Value
from tests.world.records import encode_record

STATE_TOPIC_ID = bytes(range(16))
LOG_PARTITION = 3
PARTITION_COUNT = 5
KEYS = [SharePartitionKey(f"group:{i}", bytes([i]) * 16, i) for i in range(4)]

#: The moves that `LogWriter.do` knows.
MOVES = (
    "write",
    "write",
    "write",
    "write",
    "snapshot",
    "delete",
    "take",
    "refresh",
    "gap",
    "zombie",
    "foreign",
    "claim",
    "unknown",
    "cut",
)
#: Headers of records that other programs write.
FOREIGN_HEADERS = (None, b"", b"\x01", bytes(13), b"\x01" * 14, b"\x02" * 12, b"\xff" * 13)
#: Moves after which a log is still there from its first record on.
UNCUT = tuple(move for move in MOVES if move != "cut")


class LogWriter:
    """Write one log partition as a coordinator would, and others that were superseded.

    `records` is the whole log, as if nothing had been cut; `log_start` the offset from which it is still there.
    """

    def __init__(self, random: Random, codecs: tuple[Codec, ...] = tuple(Codec)) -> None:
        self._random = random
        self._codecs = codecs
        self.records: list[RawRecord] = []
        self.log_start = 0
        #: States by share partition, as the owner has them.
        self.states: dict[SharePartitionKey, ShareState] = {}
        self._epoch = 0
        self._sequence = 0
        self._attempt_id = b""
        self._former: tuple[int, int] | None = None
        self.do("take")

    def do(self, move: str) -> None:
        """Do one of `MOVES`."""
        getattr(self, f"_{move}")()

    def reseed(self, seed: float) -> None:
        """Go on by other chances."""
        self._random = Random(seed)

    def kept(self) -> list[RawRecord]:
        """Return the records that were not cut off."""
        return self.records[self.log_start :]

    # ---- moves -----------------------------------------------------------------------------------------------------

    def _take(self) -> None:
        if self._epoch:
            self._former = self._epoch, self._sequence
        self._epoch += self._random.randint(1, 2)
        self._sequence = 0
        self._attempt_id = self._random.randbytes(16)
        self._refresh()

    def _refresh(self, cut_offset: int = -1) -> None:
        checkpoint = Checkpoint(
            self._epoch,
            self._attempt_id,
            "a",
            1,
            "cluster",
            STATE_TOPIC_ID,
            PARTITION_COUNT,
            None,
            cut_offset=cut_offset,
        )
        self._append(CHECKPOINT_KEY, encode_checkpoint(checkpoint))

    def _write(self) -> None:
        key = self._random.choice(KEYS)
        state = self.states.get(key)
        if state is None:
            self._put(key, Snapshot(0, 0, 0, 0, 0, len(self.records), len(self.records), (), 0, 0))
            return
        start = state.start_offset + self._random.choice((0, 0, 1, 5))
        first = start + self._random.randint(0, 20)
        batches = (StateBatch(first, first + self._random.randint(0, 5), self._random.choice((0, 2, 4)), 1),)
        leader_epoch = self._random.choice((-1, state.leader_epoch_fence + 1))
        self._put(key, Update(state.snapshot_epoch, leader_epoch, start, self._random.randint(-1, 5), batches))

    def _snapshot(self) -> None:
        if self.states:
            key = self._random.choice(list(self.states))
            self._put(key, self._snapshot_of(self.states[key]))

    def _delete(self) -> None:
        self._put(self._random.choice(KEYS), None)

    def _gap(self) -> None:
        """Lose an append and let later ones land: they are void until the next checkpoint, so the owner must take the log again."""
        states = dict(self.states)
        self._sequence += 1
        self._write()
        self.states = states
        self._take()

    def _zombie(self) -> None:
        if self._former is None:
            return
        states, now = dict(self.states), (self._epoch, self._sequence)
        self._epoch, self._sequence = self._former
        self._random.choice((self._write, self._delete, self._refresh))()
        self._former = self._epoch, self._sequence
        self.states, (self._epoch, self._sequence) = states, now

    def _claim(self) -> None:
        """Another node takes the epoch too, and loses it."""
        checkpoint = Checkpoint(
            self._epoch, self._random.randbytes(16), "b", 1, "cluster", STATE_TOPIC_ID, PARTITION_COUNT, None
        )
        header = encode_header(self._epoch, 0)
        self.records.append(RawRecord(len(self.records), CHECKPOINT_KEY, encode_checkpoint(checkpoint), header))

    def _foreign(self) -> None:
        header = FOREIGN_HEADERS[len(self.records) % len(FOREIGN_HEADERS)]
        self.records.append(RawRecord(len(self.records), b"\x00\x01", b"?", header))

    def _unknown(self) -> None:
        self._append((77).to_bytes(2, "big"), b"of a later version")

    def _cut(self) -> None:
        """Compact and prune as the daemon does: refresh, snapshots of what lies below it, name the cut, cut to it."""
        start = len(self.records)
        self._refresh()
        for key, state in list(self.states.items()):
            self._put(key, self._snapshot_of(state))
        self._refresh(start)
        self.log_start = start

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _snapshot_of(self, state: ShareState) -> Snapshot:
        return Snapshot(state.snapshot_epoch + 1, *state[1:7], combine((), state.state_batches, -1), *state[8:10])

    def _put(self, key: SharePartitionKey, value: Value) -> None:
        after = replay(self.states.get(key), value, 500)
        if after is None:
            self.states.pop(key, None)
        else:
            self.states[key] = after
        codec = self._random.choice(self._codecs)
        self._append(*encode_record(codec, key, value))

    def _append(self, key: bytes, value: bytes | None) -> None:
        self.records.append(RawRecord(len(self.records), key, value, encode_header(self._epoch, self._sequence)))
        self._sequence += 1


def write_log(seed: int, moves: Iterable[str]) -> LogWriter:
    """Return a log after `moves`; the same for the same arguments."""
    writer = LogWriter(Random(seed))
    for move in moves:
        writer.do(move)
    return writer


def random_log(seed: int, move_count: int) -> LogWriter:
    """Return a log after `move_count` moves drawn from the seed."""
    random = Random(-seed)
    return write_log(seed, random.choices(MOVES, k=move_count))


def logs(moves: tuple[str, ...] = MOVES) -> st.SearchStrategy[LogWriter]:
    """Draw logs made of these moves."""
    return st.builds(write_log, st.integers(0, 1 << 32), st.lists(st.sampled_from(moves), max_size=60))


class DictStore(dict[bytes, folding.Held]):
    """A `folding.Store` in memory."""

    def put(self, key: bytes, held: folding.Held) -> None:
        """Hold it."""
        self[key] = held

    def remove(self, key: bytes) -> None:
        """Forget it."""
        del self[key]
