"""Holdfast's log protocol as an executable reference model. `checker.py` beside it explores it; `--help` says how.

Read it in this order: `Rules` in `world.py` (what the protocol promises), then `step` (who counts: the one rule every
reader applies), `poll` (load and tail of an owner), `covered` (pruning) and `may_take` (who may take it back).
`moves.py` is the world around them: log, snapshot topic, faults, and what can happen next.
"""

from typing import Any

from tests.model.world import (
    Node,
    Parked,
    ParkedRead,
    Reader,
    Rec,
    Rules,
    Scope,
    Snap,
    State,
    Violation,
    World,
)

Truth = tuple[tuple[Reader, ...], tuple[bool, ...]]


class Protocol:
    """What readers and nodes do under some rules, within the bounds of some scope, and what must hold."""

    def __init__(self, rules: Rules, scope: Scope) -> None:
        self.r, self.s = rules, scope
        self._truth: dict[tuple[Rec, ...], Truth] = {(): ((self.blank(),), ())}
        self._fresh: dict[object, str] = {}
        self.idle = Node("idle", self.blank())

    def blank(self, begin: int = 0) -> Reader:
        return Reader(0, -1, 0, (None,) * self.s.keys, (-1,) * self.s.keys, begin=begin)

    def at(self, start: int) -> Reader:
        """A reader at the log start: at 0 the log is whole, elsewhere that has to be found, unless the log start is trusted."""
        return self.blank(0 if start == 0 or self.r.beginning == "start" else -1)

    def initial(self) -> World:
        return World((), 0, 0, (self.idle,) * self.s.nodes, (), (), (), (0, self.blank()), 0, (), self.s.left)

    # ---- who counts: the one rule of every reader ------------------------------------------------------------------
    def step(self, rd: Reader, off: int, rec: Rec, epoch_rule: bool = True) -> tuple[Reader, bool]:
        if rec.kind == "C":
            if rec.epoch > rd.cur or (self.r.equal == "both" and rec.epoch == rd.cur):
                return rd._replace(
                    cur=rec.epoch, nonce=rec.nonce, next=rec.seq + 1, node=rec.node, generation=rec.generation, ck=off
                ), True
            if rec.epoch == rd.cur and rec.nonce == rd.nonce and (not self.r.seq or rec.seq == rd.next):
                begin = rec.cut if rd.begin < 0 <= rec.cut and rec.cut == rd.ck else rd.begin
                return rd._replace(next=rec.seq + 1, ck=off, begin=begin), True  # the owner's own refresh
            if rd.begin < 0 and self.r.beginning == "any" and rec.cut >= 0:
                return rd._replace(begin=rec.cut), False
            is_refresh = rec.epoch == rd.cur and rec.seq > 0 and rec.nonce != rd.nonce
            if rd.begin < 0 and is_refresh and self.r.beginning != "counted":
                # Only who won an epoch refreshes in it, so what was read so far as the winning checkpoint was none.
                rd = rd._replace(nonce=rec.nonce, next=rec.seq + 1, node=rec.node, generation=rec.generation, ck=off)
                return rd, True
            return rd, False
        if epoch_rule and (rec.epoch != rd.cur or (self.r.seq and rec.seq != rd.next)):
            return rd, False
        kv = rd.kv
        if (k := rec.key) >= 0 and off > rd.cov[k]:
            new = self.apply(kv[k], rec.wid) if rec.kind == "D" else rec.post
            kv = (*kv[:k], new, *kv[k + 1 :])
        return rd._replace(next=rec.seq + 1, kv=kv), True

    def apply(self, state: State, wid: int) -> State:
        if state is None:
            return (wid,) if self.r.no_base == "fold" else None
        return (*state, wid)

    def truth(self, log: tuple[Rec, ...]) -> Truth:
        """(reader after each prefix, does each record count) for a reader of the log that was never pruned."""
        if log not in self._truth:
            readers, counts = self.truth(log[:-1])
            rd, ok = self.step(readers[-1], len(log) - 1, log[-1])
            self._truth[log] = ((*readers, rd), (*counts, ok))
        return self._truth[log]

    # ---- invariants ------------------------------------------------------------------------------------------------
    def ack(self, w: World, off: int, rec: Rec) -> World:
        if w.log[off] != rec:
            raise Violation("I1 answered a write that is not in the log")
        if not self.truth(w.log)[1][off]:
            raise Violation("I2 a superseded owner answered a write that is void")
        return w._replace(floor=max(w.floor, off + 1))

    def answer_read(self, w: World, k: int, floor: int, value: State) -> World:
        readers = self.truth(w.log)[0]
        for p in range(floor, w.hw + 1):
            if readers[p].kv[k] == value and not any(x not in (value or ()) for kk, x in w.early if kk == k):
                return w._replace(floor=max(w.floor, p))
        raise Violation("I3 an answer is not linearizable")

    def check_loaded(self, w: World, n: Node) -> None:
        readers = self.truth(w.log)[0]
        for k in range(self.s.keys):
            if n.rd.kv[k] not in [readers[p].kv[k] for p in range(n.pos, w.hw + 1)]:
                raise Violation(
                    "I5 a deleted key came back" if readers[n.pos].kv[k] is None else "I4 a load served a wrong state"
                )
            if any(kk == k and x not in (n.rd.kv[k] or ()) for kk, x in w.early):
                raise Violation("I1 an answered write is not in a later load")

    def check_commit(self, w: World, old: int) -> None:
        readers, counts = self.truth(w.log)
        for off in range(old, w.hw if self.s.ignore != "I8" else 0):
            rec = w.log[off]
            if (
                counts[off]
                and rec.kind == "C"
                and self.r.take_by != "anyone"
                and rec.generation < readers[off].generation
            ):
                raise Violation("I10 a checkpoint won over one of a newer generation")
            if counts[off] and rec.kind in "DS" and readers[off + 1].kv[rec.key] != rec.post:
                raise Violation("I8 a reader sees an effect without what it was decided on")
            if counts[off] and rec.kind == "S" and readers[off].kv[rec.key] != (rec.post if rec.wid < 0 else None):
                raise Violation("I8 a snapshot was decided on another state")

    def check_fresh(self, w: World) -> None:
        """A reader that starts now: validity as in the whole log (I7), state as in the whole log (I5, I6)."""
        may_alarm = self.is_wiped(w) and not self.is_whole(w)  # a load says so and serves nothing
        if (sig := (w.log[: w.hw], w.start, w.snaps if self.r.load_snaps else (), may_alarm)) not in self._fresh:
            (readers, counts), rd, bad = self.truth(w.log), self.at(w.start), ""
            for s in w.snaps if self.r.load_snaps else ():
                rd = self.use_snap(rd, s)
            begin = w.hw if may_alarm else self.beginning(w, rd)
            for off in range(begin if self.r.beginning != "state" else w.start, w.hw):
                rd, ok = self.step(rd, off, w.log[off])
                if off >= begin and ok != counts[off]:
                    bad = bad or "I7 validity differs after pruning"
            for k in range(0 if may_alarm else self.s.keys):
                want = readers[w.hw].kv[k]
                if rd.kv[k] != want and not (rd.cov[k] >= w.hw):
                    bad = bad or (
                        "I5 a deleted key came back" if want is None else "I6 a pruned record was still needed"
                    )
            self._fresh[sig] = bad
        if self._fresh[sig]:
            raise Violation(self._fresh[sig])

    def beginning(self, w: World, rd: Reader) -> int:
        """Find where a reader begins that starts now."""
        begin = -1 if self.r.beginning == "kept" else self.find_beginning(w, rd)
        return w.start if begin < 0 else begin

    def find_beginning(self, w: World, rd: Reader) -> int:
        """Find where the log is whole from; -1: nothing says so."""
        off = w.start
        while rd.begin < 0 and off < w.hw:
            rd, _ = self.step(rd, off, w.log[off])
            off += 1
        return max(w.start, rd.begin) if rd.begin >= 0 else -1

    def is_wiped(self, w: World) -> bool:
        """Say whether another program has deleted records."""
        return w.left.wipe < self.s.left.wipe

    def is_whole(self, w: World) -> bool:
        """Say whether a reader that starts now takes the log for whole."""
        return self.find_beginning(w, self.at(w.start)) >= 0

    # ---- a node ----------------------------------------------------------------------------------------------------
    def put(self, w: World, i: int, n: Node) -> World:
        return w._replace(nodes=(*w.nodes[:i], n, *w.nodes[i + 1 :]))

    def forget(self, n: Node) -> Node:
        return self.idle._replace(generation=n.generation)

    def unload(self, w: World, i: int) -> World:
        return self.put(w, i, self.forget(w.nodes[i]))

    def send(self, w: World, nonce: int, rec: Rec) -> World:
        chans = dict(w.chans)
        chans[nonce] = (*chans.get(nonce, ()), rec)
        return w._replace(chans=tuple(sorted(chans.items())))

    def begin(self, w: World, n: Node) -> Node:
        """Know the log start, then ask the snapshot topic's end (asking later would only be safer)."""
        n = n._replace(
            st="scan" if self.r.load_snaps else "read",
            rd=self.at(w.start),
            pos=w.start,
            scan=0,
            end=len(w.snaps),
            pend=(),
            reads=(),
            ck=-1,
        )
        return self.skip(w, n)

    def skip(self, w: World, n: Node) -> Node:
        while n.st == "scan" and n.scan < n.end and w.snaps[n.scan] is None:
            n = n._replace(scan=n.scan + 1)
        if n.st == "scan" and n.scan >= n.end:
            if self.r.scan == "chase" and len(w.snaps) > n.end:
                return self.skip(w, n._replace(end=len(w.snaps)))
            n = n._replace(st="read" if self.r.snap_after_start else "start")
        return n

    def advance(self, w: World, i: int) -> World:
        if (n := w.nodes[i]).st == "start":
            return self.put(w, i, n._replace(st="read", pos=w.start))
        if n.st == "scan":
            return self.put(w, i, self.skip(w, n._replace(rd=self.use_snap(n.rd, w.snaps[n.scan]), scan=n.scan + 1)))
        return self.poll(w, i)

    def use_snap(self, rd: Reader, s: Snap | None) -> Reader:
        if s is None or s.covered <= rd.cov[k := s.key]:
            return rd
        return rd._replace(kv=(*rd.kv[:k], s.val, *rd.kv[k + 1 :]), cov=(*rd.cov[:k], s.covered, *rd.cov[k + 1 :]))

    def readings(self, w: World) -> list[tuple[int, int, int]]:
        """Give the (epoch, node, generation) of the winning checkpoint in each reading of the log, stale ones too."""
        readers = self.truth(w.log)[0][w.start : w.hw + 1]
        return sorted({(rd.cur, rd.node, rd.generation) for rd in readers} | {(0, -1, 0)})

    def node_id(self, w: World, i: int) -> int:
        """Return the id of a node; those that come when the group was forgotten are others."""
        return i + self.s.nodes * (self.s.left.forget - w.left.forget)

    def may_take(self, i: int, n: Node, winner: int, generation: int) -> bool:
        """Say whether a node may take the partition, as far as it knows who has it."""
        by_generation = {
            "anyone": True,
            "generation": generation < n.generation or winner == i,
            "not_newer": generation <= n.generation or winner == i,
            "lower_only": generation < n.generation,
        }
        return winner < 0 or by_generation[self.r.take_by]

    def join(self, w: World, i: int, in_log: int = 0) -> World:
        """Rebalance: the leader gives the partition to a node, which may have seen a generation in the log and asked for it."""
        if self.r.hands_out == "group":
            w = w._replace(group=w.group + 1)
            return self.put(w, i, w.nodes[i]._replace(generation=w.group))
        seen = max(max(n.generation, n.rd.generation) for n in w.nodes)
        return self.put(w, i, w.nodes[i]._replace(generation=1 + max(seen, in_log)))

    def take(self, w: World, i: int, epoch: int, generation: int) -> World:
        """Send a checkpoint that follows the reading (epoch - 1, generation)."""
        n, nonce = w.nodes[i], self.s.left.take - w.left.take
        if self.r.generation == "highest":
            n = n._replace(generation=max(n.generation, generation))
        n = n._replace(epoch=epoch, nonce=nonce, seq=1, goal=w.hw)
        if n.st == "idle":
            n = self.begin(w, n)
        w = self.send(w, nonce, Rec("C", epoch, 0, nonce, self.node_id(w, i), generation=n.generation))._replace(
            left=w.left._replace(take=w.left.take - 1)
        )
        return self.put(w, i, n)

    def poll(self, w: World, i: int) -> World:
        n = w.nodes[i]
        if n.pos < w.start:  # out of range: load again from the new start, or give up ownership
            if n.st == "active":
                return self.unload(w, i)
            if self.r.out_of_range == "afresh":
                return self.put(w, i, self.begin(w, n))
            n = n._replace(pos=w.start)
        while n.pos < w.hw:
            off, rec = n.pos, w.log[n.pos]
            before, (rd, ok) = n.rd, self.step(n.rd, off, rec)
            n = n._replace(rd=rd, pos=off + 1)
            if before.begin < 0 <= rd.begin and self.r.beginning not in ("kept", "state") and rd.begin >= w.start:
                n = n._replace(rd=self.blank(rd.begin), pos=rd.begin)  # all below the cut is forgotten
                continue
            if n.st == "active" and self.r.load_until == "hw" and rd.nonce != n.nonce:
                n = n._replace(rd=rd._replace(kv=before.kv))  # believes that it knows the state already
                continue
            mine = rec.nonce == n.nonce if self.r.own_by == "nonce" else (rec.node == i and rec.epoch == n.epoch)
            if n.st == "read":
                if n.nonce < 0:
                    continue  # reading ahead
                if rec.kind == "C" and self.r.load_until == "own":
                    if mine and ok and rd.begin < 0:
                        return self.unload(w, i)  # whether it won cannot be told
                    if mine and ok:
                        n = n._replace(st="active", pred=off + 1, ck=off)
                        self.check_loaded(w, n)
                    elif (mine and self.r.equal == "first") or (ok and (rec.epoch, self.r.equal) >= (n.epoch, "first")):
                        return self.unload(w, i)  # lost the race, or superseded before it was won
                continue
            own_next = bool(n.pend) and rec == n.pend[0].rec
            rival = rec.kind == "C" and ok and not own_next
            if rival and self.r.epoch_check and (rec.epoch > n.epoch or self.r.equal == "first"):
                return self.unload(w, i)  # superseded: what is parked fails
            if self.r.epoch_check and (rival or not ok):  # void: the predictions shift by one
                if rec.kind == "C" and own_next:
                    return self.unload(w, i)  # own refresh lost a race
                n = n._replace(pred=n.pred + 1, pend=tuple(p._replace(pred=p.pred + 1) for p in n.pend))
                continue
            if (
                not n.pend
                or (self.r.epoch_check and n.pend[0].pred != off)
                or (self.r.tail_match == "record" and n.pend[0].rec != rec)
            ):
                if self.r.epoch_check:
                    return self.unload(w, i)  # not explicable: fail and load again under a new epoch
                continue
            (own, _, floor), n = n.pend[0], n._replace(pend=n.pend[1:])
            if own.kind == "C":
                n = n._replace(ck=off) if own.cut < 0 else n._replace(cut=own.cut)
            elif own.kind == "B":
                w = self.answer_read(w, own.wid, floor, n.rd.kv[own.wid])
            elif own.wid >= 0 and self.r.answer == "tail":
                w = self.ack(w, off, own)
        if n.st == "read" and self.r.load_until == "hw" and n.pos >= n.goal and n.nonce >= 0:
            n = n._replace(st="active", pred=n.pos + 1)
            self.check_loaded(w, n)
        if n.st == "active":
            for k, floor, index in n.reads:
                if n.pos >= index:
                    w = self.answer_read(w, k, floor, n.rd.kv[k])
            n = n._replace(reads=tuple(x for x in n.reads if n.pos < x.read_index))
        return self.put(w, i, n)

    def append(self, w: World, i: int, kind: str, floor: int = -1, **body: Any) -> World:
        rec = Rec(kind, (n := w.nodes[i]).epoch, n.seq, n.nonce, self.node_id(w, i), **body)
        n = n._replace(seq=n.seq + 1, pred=n.pred + 1, pend=(*n.pend, Parked(rec, n.pred, floor)))
        return self.put(self.send(w, n.nonce, rec), i, n)

    def belief(self, n: Node, k: int) -> State:
        return next((p.rec.post for p in reversed(n.pend) if p.rec.key == k), n.rd.kv[k])

    def write(self, w: World, i: int, k: int) -> World:
        state, wid = self.belief(w.nodes[i], k), w.left.write
        w = w._replace(left=w.left._replace(write=wid - 1))
        w = w._replace(early=(*w.early, (k, wid))) if self.r.answer == "append" else w
        return self.append(w, i, "S" if state is None else "D", key=k, wid=wid, post=(*(state or ()), wid))

    def delete(self, w: World, i: int, k: int) -> World:
        n = w.nodes[i]
        w = w._replace(left=w.left._replace(delete=w.left.delete - 1))
        if self.belief(n, k) is not None:
            return self.append(w, i, "T", key=k, wid=100 + w.left.delete)
        if self.r.recordless == "parked" and not n.pend:  # nothing to write, nothing parked: answered at once
            return self.answer_read(w, k, w.floor, None)
        return self.park_read(w, i, k, w.hw)

    def park_read(self, w: World, i: int, k: int, index: int) -> World:
        if (n := w.nodes[i]).pos >= index:
            return self.answer_read(w, k, w.floor, n.rd.kv[k])
        return self.put(w, i, n._replace(reads=(*n.reads, ParkedRead(k, w.floor, index))))

    def read(self, w: World, i: int, k: int, index: int) -> World:
        w = w._replace(left=w.left._replace(read=w.left.read - 1))
        if self.r.read == "barrier":
            return self.append(w, i, "B", floor=w.floor, wid=k)
        return self.park_read(w, i, k, index)

    def refresh(self, w: World, i: int) -> World:
        w = w._replace(left=w.left._replace(refresh=w.left.refresh - 1))
        if self.r.refresh == "bump":
            w = self.put(w, i, w.nodes[i]._replace(epoch=w.nodes[i].epoch + 1, seq=0))
        return self.append(w, i, "C", generation=w.nodes[i].rd.generation)

    def name(self, w: World, i: int, x: int) -> World:
        """Refresh, and say that all that is needed stands at x or behind it."""
        w = w._replace(left=w.left._replace(name=w.left.name - 1))
        return self.append(w, i, "C", generation=w.nodes[i].rd.generation, cut=x)

    def names(self, w: World, n: Node) -> list[int]:
        """Give the cuts that an owner may name: its newest refresh, if no other is on its way."""
        if self.r.beginning == "start" or n.cut >= n.ck or any(p.rec.kind == "C" for p in n.pend):
            return []
        is_due = self.r.naming == "early" or self.covered(w, n, n.ck)
        # What another program cut off is written again behind a refresh, though there is nothing left to be cut.
        is_of_use = n.ck > w.start or (self.r.rewrites and self.is_wiped(w))
        return [n.ck] if is_due and is_of_use and w.log[n.ck].seq > 0 else []

    def prune_points(self, w: World, n: Node) -> list[int]:
        points = (
            [n.ck]
            if self.r.prune_at == "own"
            else [o for o in range(w.start, n.pos) if self.r.prune_at == "any" or w.log[o].kind == "C"]
        )
        is_named = self.r.beginning == "start" or n.cut == n.ck
        return [x for x in points if is_named and x > w.start and (self.r.naming == "early" or self.covered(w, n, x))]

    def covered(self, w: World, n: Node, x: int) -> bool:
        """Every key with a counting record below x has its replacement."""
        readers, counts = self.truth(w.log)
        for k in range(self.s.keys):
            mine = [o for o in range(n.pos) if counts[o] and w.log[o].key == k]
            below = [o for o in mine if o < x]
            if not below or any(o >= x and w.log[o].kind in "ST" for o in mine):
                continue  # nothing goes, or the log itself holds all that is needed
            have = [s for s in w.snaps if s and s.key == k] if self.r.basis == "topic" else []
            top = max(have, key=lambda s: s.covered, default=None)
            if top and top.covered >= below[-1] and top.val == readers[top.covered + 1].kv[k]:
                continue  # the snapshot topic holds it, and it is right
            if w.log[below[-1]].kind == "T" and not have and not (self.r.basis == "topic" and self.r.marker):
                continue  # deleted, and nothing is left that could bring it back
            return False
        return True
