"""Random lives of a share group: which step is next follows from a seed and from what the members hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from holdfast.api.share_consumer import ACCEPT, GAP, REJECT, RELEASE, RENEW, AcknowledgedRange
from holdfast.api.share_fetch import BATCH_OPTIMIZED, RECORD_LIMIT
from tests.interop.gateway.sides import Outcome, Place, Step

MEMBERS: Final = ("a", "b", "c")
#: A session has this for a while, and nothing comes of it: the topic has no such partition.
_ODD_PLACE: Final[Place] = ("records", 99)
#: A fetch of this one fails at Kafka as a whole.
_UNKNOWN_PLACE: Final[Place] = ("unknown", 0)
_TYPES: Final = (ACCEPT,) * 4 + (RELEASE,) * 4 + (REJECT, GAP)
_COUNTS: Final = (1, 2, 3, 5, 7, 10, 20, 50, 500)
#: More than any log has.
_OFFSETS: Final = 300
_BYTES_MAX: Final = 50 << 20


class Life:
    """Members that take and acknowledge records of one partition.

    Args:
        seed: of all choices.
        place: the partition.
        can_renew: requests may renew locks; the group may refuse it.
    """

    def __init__(self, seed: int, place: Place) -> None:
        self._random: Final = Random(seed)
        self._place: Final = place
        #: Offsets that each member was given and has not settled, by the answers of Kafka.
        self._held: Final[dict[str, dict[int, None]]] = {member: {} for member in MEMBERS}
        #: Records may have been given back: fetches with small limits are cut by bytes, for then we give fewer than Kafka (protocol.md).
        self._has_released = False
        #: Members with a session.
        self._open: Final[set[str]] = set()

    def steps(self, count: int) -> Iterator[Step]:
        """Yield each step; `note` is told of what came of it before the next is asked for."""
        for _ in range(count):
            yield self._next()

    def note(self, step: Step, outcome: Outcome) -> None:
        """Take down what a step led to."""
        held = self._held[step.member]
        self._has_released |= step.kind == "hang up" or (step.epoch in (0, -1) and bool(held))
        self._has_released |= any(RELEASE in each.types for _, said in step.said for each in said)
        if step.kind == "hang up" or (step.epoch == -1 and not outcome.error_code):
            self._open.discard(step.member)
            held.clear()
            return
        if outcome.error_code:
            return
        self._open.add(step.member)
        part = outcome.parts.get(self._place)
        if part is None:
            return
        if not part.acknowledge_error and not step.is_renew:
            for place, said in step.said:
                for each in said if place == self._place else ():
                    for offset in range(each.first_offset, each.last_offset + 1):
                        held.pop(offset, None)
        for first, last, _ in part.acquired:
            held.update(dict.fromkeys(range(first, last + 1)))

    def _next(self) -> Step:
        random = self._random
        member = random.choice(MEMBERS)
        if member not in self._open:
            odd = [_ODD_PLACE] if random.random() < 0.2 else []
            return self._fetch(member, epoch=0, named=(self._place, *odd))
        drawn = random.random()
        # When the last session has gone, either loads the states again, and Kafka 4.3.1 leaves batches apart that we join.
        may_leave = len(self._open) > 1
        if drawn < 0.03 and may_leave:
            return Step("hang up", member)
        if drawn < 0.06:
            return self._fetch(member, epoch=0, named=(self._place,))
        if drawn < 0.10:
            return self._fetch(member, epoch_shift=random.choice((1, 5, 1_000)))
        if drawn < 0.14 and may_leave:
            kind = random.choice(("fetch", "acknowledge"))
            return Step(kind, member, epoch=-1, said=self._say(member) if random.random() < 0.5 else ())
        if drawn < 0.19:
            return self._renew(member)
        if drawn < 0.24:
            place = random.choice((_ODD_PLACE, _UNKNOWN_PLACE))
            said = ((place, (AcknowledgedRange(0, 3, bytes([ACCEPT])),)),)
            if random.random() < 0.5:
                return Step("acknowledge", member, said=said)
            return self._fetch(member, named=(_ODD_PLACE,))
        if drawn < 0.28:
            return self._fetch(member, forgotten=(_ODD_PLACE,))
        if drawn < 0.55 and self._held[member]:
            return Step("acknowledge", member, said=self._say(member), version=random.choice((1, 2)))
        return self._fetch(member, said=self._say(member) if random.random() < 0.6 else ())

    def _fetch(
        self,
        member: str,
        epoch: int | None = None,
        epoch_shift: int = 0,
        named: tuple[Place, ...] = (),
        said: tuple[tuple[Place, tuple[AcknowledgedRange, ...]], ...] = (),
        forgotten: tuple[Place, ...] = (),
    ) -> Step:
        random = self._random
        records_max = random.choice(_COUNTS)
        if any(RELEASE in each.types for _, ranges in said for each in ranges):
            # Whether they are free again when the records are looked for is a matter of time.
            records_max, self._has_released = 0, True
        version = random.choice((1, 2, 2))
        is_cut = self._has_released and records_max < _OFFSETS
        return Step(
            "fetch",
            member,
            epoch,
            epoch_shift,
            named,
            said,
            forgotten,
            records_max,
            random.choice((records_max, random.choice(_COUNTS))),
            random.choice((BATCH_OPTIMIZED, RECORD_LIMIT)) if version == 2 else BATCH_OPTIMIZED,
            version=version,
            max_bytes=1 if is_cut or random.random() < 0.2 else _BYTES_MAX,
        )

    def _renew(self, member: str) -> Step:
        said = self._say(member, (RENEW, RENEW, RENEW, *_TYPES))
        return Step(self._random.choice(("fetch", "acknowledge")), member, said=said, is_renew=True)

    def _say(
        self, member: str, types: Sequence[int] = _TYPES
    ) -> tuple[tuple[Place, tuple[AcknowledgedRange, ...]], ...]:
        """Return acknowledgements of some that the member holds, or now and then of anything."""
        random, held = self._random, self._held[member]
        runs = _runs(sorted(held))
        if random.random() < 0.1 or not runs:
            if random.random() < 0.5:
                return ()
            first = random.randrange(_OFFSETS)
            return ((self._place, (self._range(first, first + random.choice((0, 0, 3, 9)), types),)),)
        chosen = sorted(random.sample(runs, random.randint(1, min(3, len(runs)))))
        said = []
        for first, last in chosen:
            if random.random() < 0.5:
                first = random.randint(first, last)
                last = random.randint(first, last)
            said.append(self._range(first, last, types))
        if random.random() < 0.04:
            said.append(self._broken(said[-1]))
        return ((self._place, tuple(said)),)

    def _range(self, first: int, last: int, types: Sequence[int]) -> AcknowledgedRange:
        random, length = self._random, last - first + 1
        if random.random() < 0.6:
            return AcknowledgedRange(first, last, bytes([random.choice(types)]))
        return AcknowledgedRange(first, last, bytes(random.choices(types, k=length)))

    def _broken(self, before: AcknowledgedRange) -> AcknowledgedRange:
        """Return a range that nobody may send."""
        first, last = before.last_offset + 1, before.last_offset + 3
        return self._random.choice(
            (
                AcknowledgedRange(last, first, bytes([ACCEPT])),
                AcknowledgedRange(first, last, bytes([ACCEPT, ACCEPT])),
                AcknowledgedRange(first, last, b""),
                AcknowledgedRange(first, last, bytes([9])),
                AcknowledgedRange(first, last, bytes([RENEW])),
                AcknowledgedRange(first, last, bytes([255])),
            )
        )


def _runs(offsets: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and runs[-1][1] == offset - 1:
            runs[-1] = (runs[-1][0], offset)
        else:
            runs.append((offset, offset))
    return runs
