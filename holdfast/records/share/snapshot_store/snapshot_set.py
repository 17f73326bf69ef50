"""The entries of the snapshot topic that make up a log partition at an offset; for the daemon's load, its tail and the CLI.

A manifest is good for a log that starts at L if of each share partition the entry with the highest covered offset in [L, O],
deleted ones left out, agree with its count and its sum. Entries below the log start are not looked at: after a cut every
live share partition has a snapshot in the log again, and until the job has seen it no manifest agrees, which costs time only.

Source: `tests/model`, rules of the manifests.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple

from holdfast.records.errors import RecordError
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.snapshot_store.entries import (
    DIGEST_MODULUS,
    Entry,
    EntryKey,
    Manifest,
    ManifestKey,
    decode_entry,
    decode_key,
    decode_manifest,
    digest,
    encode_manifest_key,
    is_live_entry,
)

#: Memory that an entry takes in addition to its bytes: the objects that hold it, and its share partition's.
_OVERHEAD_BYTES: Final = 700
#: Share partitions looked at in a third of a millisecond.
_SLICE: Final = 200


class RawEntry(NamedTuple):
    """An entry as it lies in the snapshot topic."""

    covered_offset: int
    key_bytes: bytes
    value_bytes: bytes


class Disagreement(Exception):
    """Why the entries there are do not make up what a manifest says."""

    def __init__(self, text: str, *, is_undecodable: bool = False) -> None:
        super().__init__(text)
        self.is_undecodable = is_undecodable


class SnapshotSet:
    """Collect what one partition of the snapshot topic holds about one log partition of one state topic.

    Args:
        state_topic_id: 16 bytes; what is about another topic is counted and passed over.
        log_partition: of the state topic.
    """

    def __init__(self, state_topic_id: bytes, log_partition: int) -> None:
        self.state_topic_id = state_topic_id
        self._log_partition = log_partition
        #: Share partition to its entries by covered offset.
        self._entries: dict[SharePartitionKey, dict[int, RawEntry]] = {}
        self._manifests: dict[int, bytes] = {}
        #: Estimate of the memory that the entries take.
        self.size_bytes = 0
        #: Records of the snapshot topic that are about another state topic or log partition.
        self.foreign_records = 0

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def add(self, key_bytes: bytes | None, value_bytes: bytes | None) -> EntryKey | ManifestKey | None:
        """Take one record in the order of the topic; returns what it is about, None when it is passed over."""
        if key_bytes is None:
            return None
        try:
            key = decode_key(key_bytes)
        except RecordError:
            return None
        if key.state_topic_id != self.state_topic_id:
            self.foreign_records += 1
            return None
        if isinstance(key, EntryKey):
            self._add_entry(key, key_bytes, value_bytes)
        elif key.log_partition != self._log_partition:
            self.foreign_records += 1
            return None
        elif value_bytes is None:
            self._manifests.pop(key.covered_offset, None)
        else:
            self._manifests[key.covered_offset] = value_bytes
        return key

    def entries_of(self, key: SharePartitionKey) -> list[RawEntry]:
        """Return the entries of a share partition, covered offsets ascending."""
        return [entry for _, entry in sorted(self._entries.get(key, {}).items())]

    def entry(self, key: EntryKey) -> bytes | None:
        """Return the value of one entry, None if there is none."""
        entry = self._entries.get(key.key, {}).get(key.covered_offset)
        return None if entry is None else entry.value_bytes

    def removable(self, log_start: int, verified: Sequence[int]) -> Iterator[bytes | None]:
        """Yield the keys of what an owner may remove, which is dead for ever; None now and then, for others to have their turn.

        That are entries and manifests below the log start, manifests older than the two newest verified ones, and entries with
        a later one at or below the older of these. The newest entry of a share partition stays, also one that says deleted.

        Args:
            log_start: may be an earlier one than that of now.
            verified: covered offsets of the newest manifests that agree, newest first.

        Source: `removable` in tests/model/manifests.py.
        """
        oldest = verified[:2][-1] if verified else -1
        for offset in sorted(self._manifests):
            if offset < log_start or (len(verified) > 1 and offset < oldest):
                yield encode_manifest_key(ManifestKey(self.state_topic_id, self._log_partition, offset))
        for number, entries in enumerate(list(self._entries.values())):
            if number % _SLICE == _SLICE - 1:
                yield None
            newest = max((offset for offset in entries if offset <= oldest), default=-1)
            # The caller may wait for long between two keys, and another owner may remove entries meanwhile.
            dead = [entry for offset, entry in sorted(entries.items()) if offset < log_start or offset < newest]
            for entry in dead:
                yield entry.key_bytes

    def share_partitions(self) -> list[SharePartitionKey]:
        """Return every share partition that has an entry."""
        return list(self._entries)

    def manifest_offsets(self) -> list[int]:
        """Return the covered offsets of all manifests, highest first."""
        return sorted(self._manifests, reverse=True)

    def manifest(self, covered_offset: int) -> Manifest:
        """Return one of the manifests.

        Raises:
            RecordError: it cannot be decoded, or is there no more.
        """
        if covered_offset not in self._manifests:
            raise RecordError("The manifest was removed meanwhile.")
        return decode_manifest(self._manifests[covered_offset])

    def agree(self, covered_offset: int, log_start: int) -> Generator[None, None, dict[SharePartitionKey, RawEntry]]:
        """Return the entries of the live share partitions that a manifest stands for, undecoded.

        Yields now and then, so that the caller can serve others meanwhile.

        Raises:
            Disagreement: count or sum differ, or something cannot be decoded; says which.
        """
        live = {}
        digest_sum = 0
        try:
            manifest = self.manifest(covered_offset)
            for number, (key, entries) in enumerate(list(self._entries.items())):
                if number % _SLICE == _SLICE - 1:
                    yield
                newest = max((offset for offset in entries if log_start <= offset <= covered_offset), default=None)
                if newest is not None and is_live_entry((entry := entries[newest]).value_bytes):
                    live[key] = entry
                    digest_sum += digest(entry.key_bytes, entry.value_bytes)
        except RecordError as error:
            raise Disagreement(str(error), is_undecodable=True) from error
        if len(live) != manifest.live_count:
            raise Disagreement(f"{len(live)} share partitions are live where the manifest counts {manifest.live_count}")
        digest_sum %= DIGEST_MODULUS
        if digest_sum != manifest.digest_sum:
            raise Disagreement(
                f"the entries add up to {digest_sum:032x} where the manifest says {manifest.digest_sum:032x}"
            )
        return live

    def select(self, covered_offset: int, log_start: int) -> dict[SharePartitionKey, RawEntry]:
        """Return, per share partition, the entry with the highest covered offset in [`log_start`, `covered_offset`]."""
        selected = {}
        for key, entries in self._entries.items():
            offsets = [offset for offset in entries if log_start <= offset <= covered_offset]
            if offsets:
                selected[key] = entries[max(offsets)]
        return selected

    def verify(self, covered_offset: int, log_start: int) -> dict[SharePartitionKey, Entry]:
        """Return the live share partitions that the manifest at `covered_offset` stands for.

        Raises:
            Disagreement: count or sum differ, or something cannot be decoded; says which.
        """
        agreed = self.agree(covered_offset, log_start)
        while True:
            try:
                next(agreed)
            except StopIteration as end:
                live: dict[SharePartitionKey, RawEntry] = end.value
                break
        try:
            return {key: decode_entry(entry.value_bytes) for key, entry in live.items()}
        except RecordError as error:
            raise Disagreement(str(error), is_undecodable=True) from error

    def _add_entry(self, key: EntryKey, key_bytes: bytes, value_bytes: bytes | None) -> None:
        entries = self._entries.get(key.key)
        if entries is None:
            if value_bytes is None:
                return
            entries = self._entries[key.key] = {}
        before = entries.pop(key.covered_offset, None)
        if before is not None:
            self.size_bytes -= _size_bytes(before)
        if value_bytes is not None:
            entry = entries[key.covered_offset] = RawEntry(key.covered_offset, key_bytes, value_bytes)
            self.size_bytes += _size_bytes(entry)
        elif not entries:
            del self._entries[key.key]


def _size_bytes(entry: RawEntry) -> int:
    return len(entry.key_bytes) + len(entry.value_bytes) + _OVERHEAD_BYTES
