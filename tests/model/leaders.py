"""Leaders of one share partition above its state: who hands out records, and what an answer to a consumer promises.

The log below is the model of `protocol.py`; here the state is a value that is changed by one decision after the other, each durable.
A leader leads from its take on, under an epoch of its own, and may be frozen: then others take, and it goes on when it wakes up.
Consumers accept and release what they were given; answers get lost; an admin alters offsets and deletes the state.

Read it in this order: `LeaderRules` (what leaders promise), `decide_load` and `decide_write` (the state), `acquire` to `answered`
(a leader), `moves` (what can happen next). `explore` goes through every state of a scope, breadth first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from tests.model.world import Violation

#: An offset was never given out, as far as is known | is available | is held by a consumer | waits for its Write | is done.
NEW, AVAILABLE, HELD, WAITS, DONE = "new", "available", "held", "waits", "done"
#: An offset that comes back so often is done.
LIMIT: Final = 2


@dataclass(frozen=True)
class LeaderRules:
    """The rules of leaders. Every other value is a mutant, or what the model was asked about."""

    #: A state that is missing is made by "read or initialize" in one decision | "each leader" decides where it begins, and the first
    #: Write has it, as in Kafka | "two steps": it is made in spite of one that was made meanwhile.
    begin: str = "one"
    #: A load raises the fence of leaders.
    fence: bool = True
    #: A leader hands out "unless late": one that was late confirms that it owns first | "freely" | "confirmed": it always confirms.
    hand_out: str = "unless late"
    #: In a hand-over a former leader "stops" handing out before another one takes | "goes on" until it hears of it.
    hand_over: str = "stops"
    #: An accept is answered when its Write is in the log | "at once".
    answer: str = "committed"
    #: Offsets whose Write is in flight are not given out.
    waits: bool = True
    #: The log keeps the "highest" count and state of an offset | the "last".
    combine: str = "highest"
    #: The start offset passes what is done "in the log" | "given": what was given out.
    start: str = "in the log"
    #: An alteration raises the state epoch.
    alter: bool = True
    #: Writes are decided "in process", in the order of the calls | "wire": any time later.
    transport: str = "in process"
    #: A state that is made after a deletion has the "first" state epoch | one "above" all before.
    after_delete: str = "first"
    #: A late Write that was not answered is thought to have failed.
    rolls_back: bool = True


class Left(NamedTuple):
    """How often each may still happen."""

    produce: int = 1
    take: int = 2
    accept: int = 1
    release: int = 0
    lose: int = 0
    late: int = 0
    hand_over: int = 0
    alter: int = 0
    delete: int = 0


@dataclass(frozen=True)
class LeaderScope:
    """The bounds of a search."""

    left: Left
    offsets: int = 2
    leaders: int = 2


class Offset(NamedTuple):
    kind: str = NEW
    times: int = 0


class Log(NamedTuple):
    """The state as the log has it; fences are the epochs."""

    state_epoch: int
    leader_epoch: int
    start: int
    offsets: tuple[Offset, ...]
    #: Number of the state: each that is made or altered is another one. Nobody knows it.
    number: int


class Write(NamedTuple):
    leader: int
    state_epoch: int
    leader_epoch: int
    start: int
    offset: int
    became: Offset
    is_accept: bool
    #: The state that its leader knows has it.
    number: int


class Leader(NamedTuple):
    #: off | taken: it owns, and knows no state | on
    st: str = "off"
    epoch: int = 0
    is_late: bool = False
    hands_out: bool = True
    state_epoch: int = 0
    start: int = 0
    offsets: tuple[Offset, ...] = ()
    number: int = 0
    #: In flight; None: nothing is.
    write: Write | None = None


class World(NamedTuple):
    log: Log | None
    leaders: tuple[Leader, ...]
    #: Records of the topic so far.
    end: int
    left: Left
    #: Writes that the state has not seen, over the wire.
    sent: tuple[Write, ...] = ()
    #: (Write, whether it counts) that its leader does not know yet.
    answers: tuple[tuple[Write, bool], ...] = ()
    #: (leader epoch, offset) of consumers that were not answered yet.
    held: tuple[tuple[int, int], ...] = ()
    #: Since the last alteration: accepted and answered; done in the log; where the group begins, -1 before that is decided.
    accepted: frozenset[int] = frozenset()
    done: frozenset[int] = frozenset()
    begins: int = -1
    given: tuple[int, ...] = ()
    #: The highest number of a state so far, deleted ones included; and the highest state epoch.
    numbers: int = 0
    state_epochs: int = 0


Move = tuple[str, Callable[[], World]]


class Leaders:
    """Leaders and the state under some rules, within the bounds of some scope, and what must hold."""

    def __init__(self, rules: LeaderRules, scope: LeaderScope) -> None:
        self.r, self.s = rules, scope
        self.new = (Offset(),) * scope.offsets

    def initial(self) -> World:
        return World(None, (Leader(),) * self.s.leaders, 0, self.s.left, given=(0,) * self.s.offsets)

    def newest(self, w: World) -> int:
        """Return the leader that took last, and so owns the log partition; -1: none did."""
        epoch, leader = max((each.epoch, i) for i, each in enumerate(w.leaders))
        return leader if epoch else -1

    # ---- the state -------------------------------------------------------------------------------------------------
    def make(self, w: World, start: int, leader_epoch: int) -> World:
        epoch = w.state_epochs + 1 if self.r.after_delete == "above" or w.log is not None else 1
        return self.check_start(
            w._replace(
                log=Log(epoch, leader_epoch, start, self.new, w.numbers + 1),
                numbers=w.numbers + 1,
                state_epochs=max(epoch, w.state_epochs),
                begins=start if w.begins < 0 else w.begins,
            )
        )

    def decide_load(self, w: World, i: int) -> World:
        """Read or initialize; the answer is the state from here on."""
        leader = w.leaders[i]
        if w.log is not None and leader.epoch < w.log.leader_epoch:
            return self.put(w, i, Leader())
        if self.r.transport == "in process" and i != self.newest(w):
            return self.put(w, i, Leader())
        if w.log is None and self.r.begin == "each leader":
            if w.begins >= 0 and any(n not in w.done for n in range(w.begins, w.end)):
                raise Violation("L2 a record is skipped by a leader that decides again where the group begins")
            loaded = leader._replace(st="on", state_epoch=0, start=w.end, offsets=self.new)
            return self.put(w._replace(begins=w.end if w.begins < 0 else w.begins), i, loaded)
        if w.log is None or self.r.begin == "two steps":
            w = self.make(w, w.end, leader.epoch)
        assert w.log is not None
        log = w.log
        if self.r.fence:
            w = w._replace(log=log._replace(leader_epoch=leader.epoch))
        known = tuple(each if each.kind in (AVAILABLE, DONE) else Offset(NEW, each.times) for each in log.offsets)
        loaded = leader._replace(
            st="on", state_epoch=log.state_epoch, start=log.start, offsets=known, number=log.number, write=None
        )
        return self.put(w, i, loaded)

    def decide_write(self, w: World, write: Write) -> World:
        log = w.log
        if log is None and self.r.begin == "each leader":
            log = Log(0, 0, write.start, self.new, 0)
        counts = log is not None and write.state_epoch >= log.state_epoch and write.leader_epoch >= log.leader_epoch
        if self.r.transport == "in process" and write.leader != self.newest(w):
            counts = False  # void: another one owns the log partition
        if counts:
            assert log is not None
            if write.number != log.number:
                raise Violation("L5 a Write of before an alteration counts")
            w = self.apply(w, log, write)
        return w._replace(answers=(*w.answers, (write, counts)))

    def apply(self, w: World, log: Log, write: Write) -> World:
        before = log.offsets[write.offset]
        became = write.became
        if self.r.combine == "highest":
            became = max(before, became, key=lambda each: (each.times, each.kind == DONE))
        if became.times < before.times:
            raise Violation("L4 the count of an offset falls in the log")
        if before.kind == DONE and became.kind != DONE and write.offset in w.accepted:
            raise Violation("L1 what was accepted is available in the log")
        offsets = (*log.offsets[: write.offset], became, *log.offsets[write.offset + 1 :])
        done = w.done | ({write.offset} if became.kind == DONE else frozenset())
        w = w._replace(log=log._replace(start=max(log.start, write.start), offsets=offsets), done=done)
        return self.check_start(w)

    def check_start(self, w: World) -> World:
        assert w.log is not None
        if any(n not in w.done for n in range(max(0, w.begins), w.log.start)):
            raise Violation("L2 the start offset passes a record that is not done")
        return w

    def alter(self, w: World, start: int) -> World:
        """Begin again at an offset, by an admin, who is answered."""
        assert w.log is not None
        log, epoch = w.log, w.log.state_epoch + self.r.alter
        return w._replace(
            log=Log(epoch, log.leader_epoch, start, self.new, w.numbers + 1),
            numbers=w.numbers + 1,
            state_epochs=max(w.state_epochs, epoch),
            accepted=frozenset(),
            done=frozenset(),
            begins=start,
            left=spend(w.left, "alter"),
        )

    def delete(self, w: World) -> World:
        return w._replace(
            log=None,
            accepted=frozenset(),
            done=frozenset(),
            begins=-1,
            state_epochs=w.state_epochs if self.r.after_delete == "above" else 0,
            left=spend(w.left, "delete"),
        )

    # ---- a leader --------------------------------------------------------------------------------------------------
    def take(self, w: World, i: int, *, is_hand_over: bool) -> World:
        epoch = 1 + max(each.epoch for each in w.leaders)
        if is_hand_over and self.r.hand_over == "stops":
            w = w._replace(leaders=tuple(each._replace(hands_out=False) for each in w.leaders))
        left = spend(w.left, "take")
        return self.put(w._replace(left=spend(left, "hand_over") if is_hand_over else left), i, Leader("taken", epoch))

    def acquire(self, w: World, i: int, n: int) -> World:
        """Give an offset to a consumer."""
        leader = w.leaders[i]
        if (leader.is_late and self.r.hand_out != "freely") or self.r.hand_out == "confirmed":
            if i != self.newest(w):
                return self.put(w, i, Leader())
            leader = leader._replace(is_late=False)
        if n in w.accepted:
            raise Violation("L1 a record is given out whose accept was answered")
        if i == self.newest(w) and (leader.epoch, n) in w.held:
            raise Violation("L3 two consumers hold an offset of the leader")
        if w.log is not None and leader.number == w.log.number and n < w.begins:
            raise Violation("L5 a record below an alteration is given out by a leader that read it")
        given = (*w.given[:n], w.given[n] + 1, *w.given[n + 1 :])
        if given[n] > LIMIT + self.s.left.take + self.s.left.lose + self.s.left.alter + self.s.left.delete:
            raise Violation("L4 an offset is given out more often than its limit and changes of leaders explain")
        count = leader.offsets[n].times + 1
        start = n + 1 if self.r.start == "given" and n == leader.start else leader.start
        leader = leader._replace(start=start)
        w = self.put(w, i, with_offset(leader, n, Offset(HELD, count)))
        return w._replace(held=(*w.held, (leader.epoch, n)), given=given)

    def settle(self, w: World, i: int, n: int, *, is_accept: bool) -> World:
        """Take what a consumer says of an offset that it holds."""
        leader = w.leaders[i]
        w = w._replace(left=spend(w.left, "accept" if is_accept else "release"))
        if leader.st != "on" or leader.offsets[n].kind != HELD:  # of a leader that was
            return w._replace(held=tuple(each for each in w.held if each != (leader.epoch, n)))
        count = leader.offsets[n].times
        became = Offset(DONE if is_accept or count >= LIMIT else AVAILABLE, count)
        start = leader.start
        while start < self.s.offsets and (leader.offsets[start].kind == DONE or (start == n and became.kind == DONE)):
            start += 1
        write = Write(i, leader.state_epoch, leader.epoch, start, n, became, is_accept, leader.number)
        if is_accept and self.r.answer == "at once":
            w = w._replace(accepted=w.accepted | {n})
        w = self.put(w, i, with_offset(leader, n, Offset(WAITS, count))._replace(write=write))
        if self.r.transport == "in process":
            return self.decide_write(w, write)
        return w._replace(sent=(*w.sent, write))

    def answered(self, w: World, write: Write, counts: bool) -> World:
        """Let a leader hear of its Write."""
        w = w._replace(answers=tuple(each for each in w.answers if each != (write, counts)))
        leader = w.leaders[write.leader]
        if leader.write != write:
            return w
        if not counts:
            return self.drop(w, write.leader)
        leader = with_offset(leader, write.offset, write.became)._replace(
            write=None, start=max(leader.start, write.start)
        )
        is_current = w.log is not None and write.number == w.log.number
        if write.is_accept and is_current:
            w = w._replace(accepted=w.accepted | {write.offset})
        held = tuple(each for each in w.held if each != (write.leader_epoch, write.offset))
        return self.put(w, write.leader, leader)._replace(held=held)

    def drop(self, w: World, i: int) -> World:
        """Let a leader forget all that it knows, because a Write of it was refused; one that still owns loads again, under its epoch."""
        leader = w.leaders[i]
        after = Leader("taken") if i == self.newest(w) else Leader()
        return self.put(w, i, after)._replace(held=tuple(each for each in w.held if each[0] != leader.epoch))

    def give_up(self, w: World, i: int) -> World:
        """Let a leader hear nothing of its Write in time; its consumer is told so."""
        leader = w.leaders[i]
        assert leader.write is not None
        write = leader.write
        became = Offset(AVAILABLE, write.became.times) if self.r.rolls_back else write.became
        return self.put(w, i, with_offset(leader, write.offset, became)._replace(write=None))._replace(
            left=spend(w.left, "lose"),
            answers=tuple(each for each in w.answers if each[0] != write),
            held=tuple(each for each in w.held if each != (write.leader_epoch, write.offset)),
        )

    # ---- what can happen next --------------------------------------------------------------------------------------
    def moves(self, w: World) -> Iterator[Move]:
        left = w.left
        if left.produce and w.end < self.s.offsets:
            yield "a record is produced", lambda: w._replace(end=w.end + 1, left=spend(left, "produce"))
        newest = self.newest(w)
        is_gone = newest < 0 or w.leaders[newest].st == "off" or w.leaders[newest].is_late
        for i, leader in enumerate(w.leaders):
            if left.take and leader.st == "off" and (is_gone or left.hand_over):
                yield f"{i} takes", partial(self.take, w, i, is_hand_over=not is_gone)
            if leader.st == "taken":
                yield f"{i} loads", partial(self.decide_load, w, i)
            if left.late and leader.st == "on" and not leader.is_late:
                yield f"{i} is frozen", partial(self.freeze, w, i)
            if leader.st == "on":
                yield from self.moves_of(w, i, leader)
        for write in w.sent:
            rest = tuple(each for each in w.sent if each != write)
            yield f"the Write of {write.leader} arrives", partial(self.decide_write, w._replace(sent=rest), write)
        for write, counts in w.answers:
            yield f"{write.leader} hears of its Write", partial(self.answered, w, write, counts)
        if w.log is not None and left.alter:
            for start in {0, w.end}:
                yield f"an admin alters the offset to {start}", partial(self.alter, w, start)
        if w.log is not None and left.delete:
            yield "an admin deletes the state", partial(self.delete, w)

    def moves_of(self, w: World, i: int, leader: Leader) -> Iterator[Move]:
        for n in range(leader.start, w.end):
            kinds = (NEW, AVAILABLE) if self.r.waits else (NEW, AVAILABLE, WAITS)
            if leader.hands_out and leader.offsets[n].kind in kinds:
                yield f"{i} gives out {n}", partial(self.acquire, w, i, n)
        if leader.write is not None:
            if w.left.lose:
                yield f"{i} gives its Write up", partial(self.give_up, w, i)
            return
        for n in dict.fromkeys(n for epoch, n in w.held if epoch == leader.epoch):
            for is_accept in (True, False):
                if w.left.accept if is_accept else w.left.release:
                    word = "accepts" if is_accept else "releases"
                    yield f"a consumer {word} {n} of {i}", partial(self.settle, w, i, n, is_accept=is_accept)

    def freeze(self, w: World, i: int) -> World:
        """Freeze a leader; it may be superseded from now on, and goes on as if nothing had been."""
        return self.put(w._replace(left=spend(w.left, "late")), i, w.leaders[i]._replace(is_late=True))

    def put(self, w: World, i: int, leader: Leader) -> World:
        # An epoch is never given twice.
        epoch = max(leader.epoch, w.leaders[i].epoch)
        return w._replace(leaders=(*w.leaders[:i], leader._replace(epoch=epoch), *w.leaders[i + 1 :]))


def with_offset(leader: Leader, n: int, offset: Offset) -> Leader:
    return leader._replace(offsets=(*leader.offsets[:n], offset, *leader.offsets[n + 1 :]))


def spend(left: Left, what: str) -> Left:
    return left._replace(**{what: getattr(left, what) - 1})


class Explored(NamedTuple):
    states: int
    broken: str
    trace: tuple[str, ...]


def explore(model: Leaders, states_max: int = 400_000) -> Explored:
    """Go through every state; the first violation has a shortest trace."""
    first = model.initial()
    seen: dict[World, tuple[World | None, str]] = {first: (None, "")}
    queue = deque([first])
    while queue:
        w = queue.popleft()
        label = ""
        try:
            for label, act in model.moves(w):
                after = act()
                if after not in seen:
                    seen[after] = (w, label)
                    queue.append(after)
        except Violation as violation:
            return Explored(len(seen), str(violation), trace_to(seen, w, label))
        if len(seen) > states_max:
            raise AssertionError(f"more than {states_max} states")
    return Explored(len(seen), "", ())


def trace_to(seen: dict[World, tuple[World | None, str]], w: World, last: str) -> tuple[str, ...]:
    labels, at = [last], w
    while (before := seen[at])[0] is not None:
        labels.append(before[1])
        at = before[0]
    return tuple(reversed(labels))
