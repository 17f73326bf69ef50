"""Manifests and restores on top of the reference model: the job, its entries and manifests, and the load that uses them.

Read it in this order: `manifest_rules`, then `fold_batch` (the job), `verified` (which set a manifest speaks of), `pick`
and `check_record` (the load), `removable` (what the owner may remove), and `recover` (what must come back after faults).
"""

from collections.abc import Iterator
from functools import partial

from tests.model.manifest_rules import ManifestRules
from tests.model.moves import Model, Move, spend
from tests.model.world import Entry, Job, Manifest, Message, Node, Reader, Rec, Scope, State, Violation, World

#: A load tries so many manifests at most.
MANIFESTS_TRIED_MAX = 3

CORRUPT: State = (-1,)


class ManifestModel(Model):
    """The protocol with jobs that write entries and manifests, and nodes that load from them."""

    def __init__(self, rules: ManifestRules, scope: Scope) -> None:
        super().__init__(rules, scope)
        self.m = rules
        self.restores = 0  # so that a search can show that it was about something

    def initial(self) -> World:
        w = super().initial()
        first = self.afresh(w)._replace(pos=0)
        return w._replace(jobs=(first,) * self.s.jobs)

    # ---- the job ---------------------------------------------------------------------------------------------------
    def afresh(self, w: World) -> Job:
        """Start at the log's start: the log is complete from there on, but only at its end has every live key been read."""
        remembered = frozenset(k for k in range(self.s.keys) if (e := self.newest(w, k)) and e.val is not None)
        return Job(
            topic=w.topic_id,
            pos=-1 if self.m.complete == "asked before" else w.start,
            rd=self.blank(),
            waits=frozenset(),
            covered=(-1,) * self.s.keys,
            o=-1,
            complete_at=w.hw if "asked" in self.m.complete else 0,
            checkpoints=2 if w.start == 0 or self.m.complete != "checkpoint" else 0,
            remembered=remembered if self.m.below_start == "cleaned" else frozenset(),
        )

    def newest(self, w: World, k: int) -> Entry | None:
        mine = [e for e in self.view(w.topic) if isinstance(e, Entry) and e.key == k and self.is_of(e, w.topic_id)]
        return max(mine, key=lambda e: e.covered, default=None)

    def fold_batch(self, w: World, x: int, hi: int) -> World:
        """Fold the log up to `hi`: an entry for each key that changed, then a manifest if the fold is complete."""
        j = w.jobs[x]
        rd, waits, covered, o, checkpoints = j.rd, set(j.waits), list(j.covered), j.o, j.checkpoints
        entries: dict[int, Entry] = {}
        for off in range(j.pos, hi):
            rec, before = w.log[off], rd
            rd, counts = self.step(rd, off, rec)
            if not counts:
                continue
            o = off
            if (k := rec.key) < 0:
                checkpoints += 1
                continue
            if rec.kind == "D" and before.kv[k] is None:
                waits.add(k)
                continue
            waits.discard(k)
            covered[k] = off
            entries[k] = Entry(w.topic_id, k, off, rd.kv[k])
        queue: tuple[Message, ...] = tuple(
            entries[k] for k in sorted(entries) if self.m.tombstones or entries[k].val is not None
        )
        remembered = j.remembered
        if o >= 0 and hi >= j.complete_at and checkpoints >= 2 and (self.m.waiting or not waits):
            queue += tuple(Entry(w.topic_id, k, o, None) for k in sorted(remembered) if covered[k] < 0)
            remembered = frozenset()
            live = frozenset((k, covered[k], kv) for k, kv in enumerate(rd.kv) if kv is not None)
            manifest = Manifest(w.topic_id, o, rd.cur, rd.nonce, rd.next, rd.node, rd.generation, live, ck=rd.ck)
            queue = (manifest, *queue) if self.m.order == "manifest" else (*queue, manifest)
        for message in queue:
            self.check_true(w, message)
        saved = j._replace(saved=None)
        done = Job(
            j.topic,
            hi,
            rd,
            frozenset(waits),
            tuple(covered),
            o,
            j.complete_at,
            min(checkpoints, 2),
            remembered,
            queue,
            saved,
            w.log[hi - 1],
        )
        return self.put_job(w, x, done)

    def check_true(self, w: World, message: Message) -> None:
        """What a job says of the log must be so in the log that was never pruned (I11)."""
        readers, counts = self.truth(w.log)
        if isinstance(message, Entry):
            if readers[message.covered + 1].kv[message.key] != message.val:
                raise Violation("I11 an entry says what the log does not say")
            return
        if self.m.says == "load":
            return
        rd = readers[message.o + 1]
        live = frozenset(
            (k, max(o for o in range(message.o + 1) if counts[o] and w.log[o].key == k), kv)
            for k, kv in enumerate(rd.kv)
            if kv is not None
        )
        if message != Manifest(
            message.topic, message.o, rd.cur, rd.nonce, rd.next, rd.node, rd.generation, live, ck=rd.ck
        ):
            raise Violation("I11 a manifest says what the log does not say")

    def put_job(self, w: World, x: int, j: Job) -> World:
        return w._replace(jobs=(*w.jobs[:x], j, *w.jobs[x + 1 :]))

    def write_next(self, w: World, x: int, corrupt: bool = False) -> World:
        message, *rest = w.jobs[x].queue
        if corrupt and isinstance(message, Entry):
            message = message._replace(val=CORRUPT)
        w = self.put_job(w, x, w.jobs[x]._replace(queue=tuple(rest)))
        return w._replace(topic=(*w.topic, message))

    # ---- the snapshot topic ----------------------------------------------------------------------------------------
    def identity(self, message: Message) -> tuple[object, ...]:
        """Give the message key: what compaction keeps one of."""
        topic = message.topic if self.m.entry_topic == "key" else 0
        if isinstance(message, Entry):
            return ("entry", topic, message.key, message.covered)
        return ("manifest", topic, message.o)

    def view(self, messages: tuple[Message | None, ...]) -> list[Message]:
        """Give what stands after the messages were read in their order."""
        last = {self.identity(x): x for x in messages if x}
        return [x for x in last.values() if not x.gone]

    def is_of(self, e: Entry, topic_id: int) -> bool:
        return e.topic == topic_id or self.m.entry_topic == "none"

    def verified(self, view: list[Message], m: Manifest, topic_id: int, start: int) -> tuple[State, ...] | None:
        """Give the state that the entries make at the manifest's O, if it is the set that the manifest speaks of."""
        entries = [
            e
            for e in view
            if isinstance(e, Entry)
            and self.is_of(e, topic_id)
            and (e.covered >= start or self.m.below_start != "ignored")
        ]

        def at(limit: int) -> list[Entry | None]:
            mine = [[e for e in entries if e.key == k and e.covered <= limit] for k in range(self.s.keys)]
            return [max(es, key=lambda e: e.covered, default=None) for es in mine]

        newest = at(m.o)
        live = frozenset((e.key, e.covered, e.val) for e in newest if e and e.val is not None)
        if (self.m.total and live != m.live) or (self.m.count and len(live) != len(m.live)):
            return None
        return tuple(e.val if e else None for e in (at(1 << 30) if self.m.above else newest))

    def manifests(self, view: list[Message], topic_id: int) -> list[Manifest]:
        """Give the manifests of this topic id, highest O first."""
        mine = [m for m in view if isinstance(m, Manifest) and (m.topic == topic_id or not self.m.manifest_topic)]
        return sorted(mine, key=lambda m: -m.o)

    def newest_verified(self, w: World) -> list[Manifest]:
        """Give the two newest manifests that a load could use now."""
        view = self.view(w.topic)
        return [
            m
            for m in self.manifests(view, w.topic_id)
            if m.o >= w.start and self.verified(view, m, w.topic_id, w.start) is not None
        ][:2]

    def removable(self, w: World) -> Iterator[Message]:
        """Yield what the owner may remove: nothing that the two newest verified manifests or later ones need."""
        view = self.view(w.topic)
        good = self.newest_verified(w)
        needed = {need for m in good for need in m.live}
        for x in view:
            if self.m.entry_topic != "none" and x.topic != w.topic_id:
                yield x
                continue
            if isinstance(x, Manifest):
                if x.o < w.start or (len(good) == 2 and x.o < good[1].o):
                    yield x
                continue
            others = [e.covered for e in view if isinstance(e, Entry) and (e.topic, e.key) == (x.topic, x.key)]
            superseded = any(x.covered < y and (self.m.nulls == "early" or y <= good[-1].o) for y in others if good)
            unneeded = bool(good) and (x.key, x.covered, x.val) not in needed
            at_or_below = bool(good) and x.covered <= good[0].o
            oldest = x.covered == min(others)
            if {
                "superseded": x.covered < w.start or superseded,
                "early": x.covered < w.start or superseded,
                "needed": at_or_below and unneeded,
                "ordered": at_or_below and unneeded and (x.val is not None or oldest),
                "any": unneeded,
            }[self.m.nulls]:
                yield x

    def ask_removal(self, w: World, message: Message) -> World:
        """Send a removal: what either of the two newest verified manifests needs must stay."""
        null = message._replace(gone=True)
        self.check_kept(w, null, self.newest_verified(w))
        return spend(w, "null")._replace(nulls=(*w.nulls, null))

    def remove(self, w: World, a: int) -> World:
        """Let a removal land, however late: what the newest verified manifest needs must stay."""
        self.check_kept(w, w.nulls[a], self.newest_verified(w)[:1])
        return w._replace(topic=(*w.topic, w.nulls[a]), nulls=w.nulls[:a] + w.nulls[a + 1 :])

    def check_kept(self, w: World, null: Message, manifests: list[Manifest]) -> None:
        view = self.view((*w.topic, null))
        if any(self.verified(view, m, w.topic_id, w.start) is None for m in manifests if m._replace(gone=True) != null):
            raise Violation("I9 the owner removes what a manifest in use needs")

    # ---- the load --------------------------------------------------------------------------------------------------
    def begin(self, w: World, n: Node) -> Node:
        """Wait for one's own checkpoint (none yet while reading ahead), then read the snapshot topic to its end."""
        st = "scan" if n.nonce < 0 else "own"
        return n._replace(
            st=st, rd=self.blank(), pos=w.start, scan=0, pend=(), reads=(), ck=-1, own=-1, seen=(), base=None
        )

    def own_offset(self, w: World, n: Node) -> int:
        return next((o for o in range(w.start, w.hw) if w.log[o].kind == "C" and w.log[o].nonce == n.nonce), -1)

    def advance(self, w: World, i: int) -> World:
        n = w.nodes[i]
        if n.st == "own":
            if (own := self.own_offset(w, n)) < 0:
                return w
            return self.put(w, i, n._replace(st="scan", own=own))
        if n.st == "scan":
            end = min(n.scan + 1, len(w.topic)) if self.s.torn else len(w.topic)
            n = n._replace(seen=n.seen + tuple(x for x in w.topic[n.scan : end] if x), scan=end)
            return self.put(w, i, n._replace(st="pick") if end == len(w.topic) else n)
        if n.st == "pick":
            return self.put(w, i, self.pick(w, n))
        if n.st == "record":
            return self.put(w, i, self.check_record(w, n))
        return self.poll(w, i)

    def whole(self, w: World, n: Node) -> Node:
        return n._replace(st="read", rd=self.blank(), pos=w.start, seen=(), base=None)

    def pick(self, w: World, n: Node) -> Node:
        """Take the newest manifest that lies in the log before one's own checkpoint and whose set is exact."""
        view = self.view(n.seen)
        start = w.start if self.m.start_asked == "after" else n.pos
        lowest = {"at": start, "after": start - 1, "any": 0}[self.m.start]
        tried = [
            m
            for m in self.manifests(view, w.topic_id)
            if m.o >= lowest and (m.o < n.own or n.own < 0 or not self.m.below_own)
        ]
        for m in tried[:MANIFESTS_TRIED_MAX]:
            if (kv := self.verified(view, m, w.topic_id, start)) is not None:
                rd = self.blank()._replace(
                    cur=m.epoch, nonce=m.nonce, next=m.next, node=m.node, generation=m.generation, ck=m.ck
                )
                if self.m.carry == "sequence":
                    rd = rd._replace(next=-1)
                if self.m.carry == "attempt":
                    rd = rd._replace(nonce=-1)
                return n._replace(st="record", rd=rd._replace(kv=kv), pos=m.o, seen=(), base=m)
        return self.whole(w, n)

    def check_record(self, w: World, n: Node) -> Node:
        """Compare the record at O, which also shows that the log still has it; then read on from O + 1."""
        assert n.base
        skipped = self.m.start == "after" and n.pos == w.start - 1
        if self.m.record and not skipped:
            if not w.start <= n.pos < w.hw:
                return self.whole(w, n)
            rec = w.log[n.pos]
            if (rec.epoch, rec.seq) != (n.base.epoch, n.base.next - 1):
                return self.whole(w, n)
            if rec.kind == "C" and rec.nonce != n.base.nonce:
                return self.whole(w, n)
        if self.m.checkpoint and n.base.ck >= w.start:
            rec = w.log[n.base.ck]
            if rec.kind != "C" or (rec.epoch, rec.nonce) != (n.base.epoch, n.base.nonce):
                return self.whole(w, n)
        self.restores += 1
        return n._replace(st="read", pos=n.pos + 1)

    def step(self, rd: Reader, off: int, rec: Rec, epoch_rule: bool = True) -> tuple[Reader, bool]:
        if rd.next < 0 and rec.epoch == rd.cur:  # mutant: the next sequence is taken from the first record read
            rd = rd._replace(next=rec.seq)
        return super().step(rd, off, rec, epoch_rule)

    def poll(self, w: World, i: int) -> World:
        w = super().poll(w, i)
        n = w.nodes[i]
        if n.st == "read" and 0 <= n.own < n.pos:
            raise Violation("I4 a load has passed its own checkpoint without meeting it")
        return w

    def check_loaded(self, w: World, n: Node) -> None:
        super().check_loaded(w, n)
        want = self.truth(w.log)[0][n.pos]
        if n.rd != want._replace(cov=n.rd.cov, kv=n.rd.kv):
            raise Violation("I7 a load ends at another position than a reader of the whole log")
        if n.rd.kv != want.kv:
            raise Violation("I4 a load served a wrong state")

    # ---- what can happen -------------------------------------------------------------------------------------------
    def append(self, w: World, i: int, kind: str, floor: int = -1, **body: object) -> World:
        w = super().append(w, i, kind, floor, **body)
        return self.poll(w, i) if self.s.direct else w

    def send(self, w: World, nonce: int, rec: Rec) -> World:
        return self.land(w, rec, w.chans) if self.s.direct else super().send(w, nonce, rec)

    def load_moves(self, w: World, i: int, n: Node) -> Iterator[Move]:
        for label, act in super().load_moves(w, i, n):
            yield label.replace(f"snapshot {n.scan}", f"the snapshot topic from {n.scan}"), act
        if n.st == "own" and self.own_offset(w, n) >= 0:
            yield f"n{i} knows where its own checkpoint lies", partial(self.advance, w, i)
        if n.st in ("pick", "record"):
            what = "picks a manifest" if n.st == "pick" else f"reads the record at {n.pos}"
            yield f"n{i} {what}", partial(self.advance, w, i)

    def log_moves(self, w: World) -> Iterator[Move]:
        yield from super().log_moves(w)
        if w.left.again and w.log:
            new = World(
                **super()
                .initial()
                ._replace(
                    left=spend(w, "again").left,
                    topic_id=w.topic_id + 1,
                    topic=w.topic,
                    nulls=w.nulls,
                    jobs=w.jobs,
                )
                ._asdict()
            )
            yield "the state topic is deleted and recreated", partial(World._make, new)
        if w.left.unclean and w.hw == len(w.log) > w.start:
            lost = spend(w, "unclean")._replace(
                log=w.log[:-1], hw=w.hw - 1, nodes=(self.idle,) * self.s.nodes, floor=min(w.floor, w.hw - 1)
            )
            yield f"a broker loses the record at {w.hw - 1}", partial(World._make, lost)

    def topic_moves(self, w: World) -> Iterator[Move]:
        for x, j in enumerate(w.jobs):
            yield from self.job_moves(w, x, j)
        if w.left.null and any(n.st == "active" for n in w.nodes):
            for message in self.removable(w):
                yield f"the owner removes {message}", partial(self.ask_removal, w, message)
        for a, null in enumerate(w.nulls):
            yield f"lands: {null}", partial(self.remove, w, a)
        if w.left.compact:
            yield from self.compactions(w)

    def job_moves(self, w: World, x: int, j: Job) -> Iterator[Move]:
        if j.queue:
            yield f"job {x} writes {j.queue[0]}", partial(self.write_next, w, x)
            if w.left.corrupt and isinstance(j.queue[0], Entry):
                yield f"job {x} writes {j.queue[0]} wrongly", partial(self.write_next, spend(w, "corrupt"), x, True)
        elif (ready := self.ready(w, j)) != j:
            yield f"job {x} starts afresh at {ready.pos}", partial(self.put_job, w, x, ready)
        elif w.left.job:
            for hi in range(j.pos + 1, w.hw + 1):
                yield f"job {x} folds {j.pos} to {hi - 1}", partial(self.fold_batch, spend(w, "job"), x, hi)
        if w.left.kill and j.saved:
            yield f"job {x} is killed", partial(self.put_job, spend(w, "kill"), x, j.saved)
        if w.left.fresh and j.pos > w.start:
            yield f"job {x} loses its state", partial(self.put_job, spend(w, "fresh"), x, self.afresh(w))

    def ready(self, w: World, j: Job) -> Job:
        """Give the job as it goes on: at its position, or afresh where the log is not the one it read."""
        if j.topic != w.topic_id and self.m.job_topic:
            return self.afresh(w)
        if j.pos == -1 or (j.pos < w.start and self.m.over_cut == "go on"):
            return j._replace(pos=w.start)
        return j if w.start <= j.pos <= w.hw and self.may_go_on(w, j) else self.afresh(w)

    def may_go_on(self, w: World, j: Job) -> bool:
        """Say whether the log still holds what the job knows it by; what else a record says may be the same by chance."""
        if j.last is None or self.m.resumes == "unaware":
            return True
        if self.m.resumes == "counted":
            at, wanted = j.o, (j.rd.cur, j.rd.next - 1)
        else:
            at, wanted = j.pos - 1, (j.last.epoch, j.last.seq)
        if at < w.start:
            return False
        if self.m.resumes != "checkpoint" and (w.log[at].epoch, w.log[at].seq) != wanted:
            return False
        if j.rd.ck < w.start or self.m.resumes == "last":
            return True
        newest = w.log[j.rd.ck]
        return newest.kind == "C" and (newest.epoch, newest.nonce) == (j.rd.cur, j.rd.nonce)

    def compactions(self, w: World) -> Iterator[Move]:
        """Compaction drops what a later message with its key replaces, and at any moment a null that stands alone."""
        for a, x in enumerate(w.topic):
            if x is None:
                continue
            same = [b for b, y in enumerate(w.topic) if y and b != a and self.identity(y) == self.identity(x)]
            if any(b > a for b in same) or (x.gone and not same):
                dropped = spend(w, "compact")._replace(topic=(*w.topic[:a], None, *w.topic[a + 1 :]))
                yield f"compaction drops message {a}", partial(World._make, dropped)

    def recover(self, w: World) -> None:
        """Faults stop and one job goes on to the end of the log: then its newest manifest must verify (I9)."""
        w = w._replace(topic=w.topic + w.nulls)
        for x in range(self.s.jobs):
            while w.jobs[x].queue:
                w = self.write_next(w, x)
        j = w.jobs[0]
        if w.left.corrupt < self.s.left.corrupt:
            j = self.afresh(w)  # a job that starts afresh is the repair of wrong content
        while (ready := self.ready(w, j)) != j:
            j = ready
        w = self.put_job(w, 0, j)
        if j.pos < w.hw:
            w = self.fold_batch(w, 0, w.hw)
            while w.jobs[0].queue:
                w = self.write_next(w, 0)
        counts = self.truth(w.log)[1]
        last = max((o for o in range(w.start, w.hw) if counts[o]), default=None)
        if last is None or self.m.complete == "checkpoint":
            return
        view = self.view(w.topic)
        newest = max(
            (m for m in view if isinstance(m, Manifest) and m.topic == w.topic_id), key=lambda m: m.o, default=None
        )
        if not newest or newest.o != last:
            raise Violation("I9 the job wrote no manifest for the end of the log")
        if self.verified(view, newest, w.topic_id, w.start) is None:
            raise Violation("I9 the newest manifest can never be used")
