"""What can happen next in the world of the reference model: nodes act, records land, faults strike."""

from collections.abc import Callable, Iterator
from functools import partial

from tests.model.protocol import Protocol
from tests.model.world import Node, Reader, Rec, Snap, Violation, World, show

Move = tuple[str, Callable[[], World]]


def spend(w: World, what: str) -> World:
    """Count one of the things that may happen only so often."""
    return w._replace(left=w.left._replace(**{what: getattr(w.left, what) - 1}))


class Model(Protocol):
    """The protocol in its world; a walk through it starts at `initial` and takes one of `moves` after another."""

    def moves(self, w: World) -> Iterator[Move]:
        """Yield (label, function that makes the next world). One yield is one atomic step."""
        for i, n in enumerate(w.nodes):
            yield from self.load_moves(w, i, n)
            yield from self.generation_moves(w, i, n)
            if n.st == "active":
                yield from self.owner_moves(w, i, n)
        yield from self.log_moves(w)
        yield from self.topic_moves(w)

    def load_moves(self, w: World, i: int, n: Node) -> Iterator[Move]:
        ahead = n.st == "read" and n.nonce < 0
        if w.left.take and (ahead or (n.st == "idle" and self.s.cold)):
            for epoch, winner, generation in self.readings(w):
                if self.may_take(self.node_id(w, i), n, winner, generation):
                    yield f"n{i} checkpoint epoch {epoch + 1}", partial(self.take, w, i, epoch + 1, generation)
        if self.s.warm and n.st == "idle" and w.left.take:
            yield f"n{i} reads ahead", lambda: self.put(w, i, self.begin(w, n))
        if w.left.told and n.st == "idle":
            for x in range(w.hw + 1):
                if x != w.start:
                    told = self.begin(w, n)._replace(rd=self.at(x), pos=x)
                    yield (
                        f"n{i} reads ahead, told that the log starts at {x}",
                        partial(self.put, spend(w, "told"), i, told),
                    )
        if n.st in ("scan", "start") or (n.st in ("read", "active") and (n.pos < w.hw or n.pos < w.start)):
            what = {"scan": f"snapshot {n.scan}", "start": f"log start {w.start}"}.get(n.st, f"the log to {w.hw}")
            yield f"n{i} reads {what}", partial(self.advance, w, i)
        if w.left.stop and n.st != "idle":
            yield f"n{i} crashes or its append fails", lambda: self.unload(spend(w, "stop"), i)

    def generation_moves(self, w: World, i: int, n: Node) -> Iterator[Move]:
        if w.left.start:
            for generation in sorted({g for _, _, g in self.readings(w)}):
                new = self.idle._replace(generation=generation + 1)
                yield f"n{i} starts as generation {generation + 1}", partial(self.put, spend(w, "start"), i, new)
        if w.left.join:
            yield f"n{i} is given the partition", partial(self.join, spend(w, "join"), i)
        if w.left.forget and i == 0:
            gone = spend(w, "forget")._replace(nodes=(self.idle,) * self.s.nodes, group=1)
            yield "all nodes stop, the group is forgotten, and others start", partial(World._make, gone)
        if w.left.force and w.left.take and n.st == "idle":
            for epoch, _, generation in self.readings(w):
                label = f"n{i} takes epoch {epoch + 1} by force"
                yield label, partial(self.take, spend(w, "force"), i, epoch + 1, generation)

    def owner_moves(self, w: World, i: int, n: Node) -> Iterator[Move]:
        for k in range(self.s.keys):
            if w.left.write:
                yield f"n{i} writes k{k}", partial(self.write, w, i, k)
            if w.left.delete:
                yield f"n{i} deletes k{k}", partial(self.delete, w, i, k)
            if w.left.read:
                for index in {0 if self.r.read == "none" else w.hw, n.pos if self.s.stale_leader else w.hw}:
                    yield f"n{i} read of k{k} at index {index}", partial(self.read, w, i, k, index)
            if w.left.cold and (state := self.belief(n, k)) is not None:
                label = f"n{i} snapshots cold k{k}"
                yield label, partial(self.append, spend(w, "cold"), i, "S", key=k, post=state)
        if w.left.refresh:
            yield f"n{i} refreshes its checkpoint", partial(self.refresh, w, i)
        if w.left.name:
            for x in self.names(w, n):
                yield f"n{i} names the cut {x}", partial(self.name, w, i, x)
        if w.left.prune:
            for x in self.prune_points(w, n):
                asked = spend(w, "prune")._replace(dels=tuple(sorted((*w.dels, x))))
                yield f"n{i} asks to prune to {x}", partial(World._make, asked)

    def log_moves(self, w: World) -> Iterator[Move]:
        for c, (nonce, recs) in enumerate(w.chans):
            rest = w.chans[:c] + (((nonce, recs[1:]),) if recs[1:] else ()) + w.chans[c + 1 :]
            yield f"lands at {len(w.log)}: {show(recs[0])}", partial(self.land, w, recs[0], rest)
            if w.left.drop and len(recs) > 1:
                yield f"lost for ever: {show(recs[0])}", partial(World._make, spend(w, "drop")._replace(chans=rest))
        if w.hw < len(w.log):
            yield "high watermark moves", partial(self.commit, w, w.hw + 1)
            yield "broker fail-over loses what is above the high watermark", lambda: w._replace(log=w.log[: w.hw])
        for x in sorted(set(w.dels)):
            cut = w._replace(start=max(w.start, x), dels=tuple(y for y in w.dels if y != x))
            yield f"DeleteRecords to {x} lands", partial(World._make, cut)
        for x in range(w.start + 1, w.hw + 1 if w.left.wipe else 0):
            yield f"another program deletes to {x}", partial(World._make, spend(w, "wipe")._replace(start=x))
        for x in range(w.start if w.left.fallback else 0):
            yield f"the log start falls back to {x}", partial(World._make, spend(w, "fallback")._replace(start=x))

    def topic_moves(self, w: World) -> Iterator[Move]:
        jpos, jrd = w.job
        if w.left.job and w.start <= jpos < w.hw:
            yield f"job folds the log to {w.hw}", partial(self.fold, w, jpos, jrd)
        if w.left.fresh and jpos and (w.left.job or not self.r.job_epoch_rule):
            fresh = spend(w, "fresh")._replace(job=(w.start, self.blank()))
            yield "job lost its state, starts at the log start", partial(World._make, fresh)
        if w.left.zombie:
            readers, counts = self.truth(w.log)
            for off in range(min(jpos, w.hw)):
                if counts[off] and (k := w.log[off].key) >= 0:
                    snap = Snap(k, off, readers[off + 1].kv[k])
                    late = spend(w, "zombie")._replace(snaps=(*w.snaps, snap))
                    yield f"zombie job writes k{k} covered {off} at s{len(w.snaps)}", partial(World._make, late)
        if w.left.compact:
            yield from self.compactions(w)

    def compactions(self, w: World) -> Iterator[Move]:
        scans = [n for n in w.nodes if n.st == "scan"]
        for a, x in enumerate(w.snaps):
            if x is None:
                continue
            others = [(b, y) for b, y in enumerate(w.snaps) if y and b != a and y.key == x.key]
            if self.r.snap_key == "versioned":  # the owner removes what a present entry dominates
                gone = [b for b, y in others if y.covered > x.covered or (y.covered == x.covered and b > a)]
            else:  # the broker keeps the latest entry of a key
                gone = [b for b, y in others if b > a]
                if x.val is None and not others and not (scans and self.s.lag):
                    gone = [a]  # delete.retention.ms has passed
            if gone and (not self.s.lag or all(min(gone) < n.end for n in scans)):
                left = spend(w, "compact")._replace(snaps=(*w.snaps[:a], None, *w.snaps[a + 1 :]))
                yield f"compaction drops s{a}", partial(World._make, left)

    def recover(self, w: World) -> None:
        """Check what must hold once faults have stopped; here there is nothing but what `settle` tries."""

    def fold(self, w: World, pos: int, rd: Reader) -> World:
        changed: dict[int, Snap] = {}
        for off in range(pos, w.hw):
            rec = w.log[off]
            rd, ok = self.step(rd, off, rec, self.r.job_epoch_rule)
            if ok and rec.key >= 0 and not (rec.kind == "D" and rd.kv[rec.key] is None):
                changed[rec.key] = Snap(rec.key, off, rd.kv[rec.key])
        new = tuple(changed[k] for k in sorted(changed))
        return spend(w, "job")._replace(job=(w.hw, rd), snaps=w.snaps + new)

    def land(self, w: World, rec: Rec, rest: tuple[tuple[int, tuple[Rec, ...]], ...]) -> World:
        w = w._replace(log=(*w.log, rec), chans=rest)
        return w if self.s.hw_lag else self.commit(w, len(w.log))

    def commit(self, w: World, hw: int) -> World:
        old, w = w.hw, w._replace(hw=hw)
        self.check_commit(w, old)
        counts = self.truth(w.log)[1]
        for off in range(old, hw):
            key = (w.log[off].key, w.log[off].wid)
            if key in w.early:
                if not counts[off]:
                    raise Violation("I1 an answered write became void")
                w = w._replace(early=tuple(x for x in w.early if x != key), floor=max(w.floor, off + 1))
        return w
