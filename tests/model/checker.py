"""Explores the reference model in `protocol.py`: breadth first over small scopes, random walks over a large one.

Breadth first means that the first violation found has a shortest trace. `settle` (faults stop, a node must become
active with the right state) is tried on a sample of the states, and on all of them where it matters who may take.
"""

import argparse
import math
import random
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from tests.model.manifest_rules import MANIFESTS, ManifestRules
from tests.model.manifest_scopes import (
    ALSO_HOLDS,
    BIG_MANIFESTS,
    EARLY,
    MANIFEST_MUTANTS,
    MANIFEST_SCOPES,
    UNSETTLED,
)
from tests.model.manifests import ManifestModel
from tests.model.moves import Model
from tests.model.world import (
    DESIGN,
    FALLBACK,
    GENERATION,
    REPAIRED,
    VERSIONED,
    Left,
    Rec,
    Rules,
    Scope,
    Violation,
    World,
)


def land_all(m: Model, w: World) -> World:
    """Let everything in flight land and be committed."""
    while w.chans:
        nonce, recs = w.chans[0]
        w = m.land(w, recs[0], (((nonce, recs[1:]),) if recs[1:] else ()) + w.chans[1:])
    return m.commit(w._replace(start=max((w.start, *w.dels)), dels=()), len(w.log))


def settle(m: Model, w: World) -> None:
    """Faults stop, everything in flight lands: then a node that loads must become active (I4)."""
    m.recover(w)
    if m.r.take_by != "anyone":
        agree(m, w)
    w = w._replace(left=w.left._replace(take=0))
    w = make_whole(m, w)
    for i in range(m.s.nodes):
        w = m.unload(w, i)
    w = land_all(m, w)
    is_whole = not m.is_wiped(w) or m.is_whole(w)
    nonce, cur = 10_000, max([r.epoch for r in w.log[w.start : w.hw] if r.kind == "C"], default=0)
    n = m.begin(w, m.idle._replace(epoch=cur + 1, nonce=nonce, seq=1, goal=w.hw))
    w = m.put(m.land(w, Rec("C", cur + 1, 0, nonce, 0, generation=m.truth(w.log)[0][-1].generation), ()), 0, n)
    w = m.commit(w, len(w.log))
    for _ in range(50):
        if w.nodes[0].st == ("active" if is_whole else "idle"):
            break
        w = m.advance(w, 0)
    else:
        raise Violation("I4 a load does not end")


def make_whole(m: Model, w: World) -> World:
    """Let the owner write again what another program deleted: a refresh, a snapshot of every key, and the name of that refresh (I9)."""
    if not m.is_wiped(w) or m.is_whole(w):
        return w
    w = catch_up(m, w)
    owners = [
        i for i, n in enumerate(w.nodes) if n.st == "active" and not n.pend
    ]  # behind a lost append nothing counts
    if not owners:
        return w  # what is lost is lost; who loads says so
    [owner] = owners
    w = catch_up(m, m.append(w, owner, "C", generation=w.nodes[owner].rd.generation))
    for key in range(m.s.keys):
        if (state := m.belief(w.nodes[owner], key)) is not None:
            w = m.append(w, owner, "S", key=key, post=state)
    w = catch_up(m, w)
    for cut in m.names(w, w.nodes[owner]):
        w = catch_up(m, m.append(w, owner, "C", generation=w.nodes[owner].rd.generation, cut=cut))
    if not m.is_whole(w):
        raise Violation("I9 an owner does not make its log whole again")
    return w


def catch_up(m: Model, w: World) -> World:
    """Let everything in flight land, and every node read it."""
    w = land_all(m, w)
    for i in range(m.s.nodes):
        for _ in range(50):
            if w.nodes[i].st == "idle" or (w.nodes[i].st != "scan" and w.start <= w.nodes[i].pos == w.hw):
                break
            w = m.advance(w, i)
    return w


def agree(m: Model, w: World) -> None:
    """Faults stop, and each node takes the partition as soon as it may: then one node must end up with it (I9).

    Where none may because the group was forgotten, who is given the partition meets the generation in the log that is in its way,
    and asks for a rebalance. One must be enough.
    """
    may_rejoin = m.r.rejoins and w.left.forget < m.s.left.forget
    for _ in range(2 + 2 * m.s.nodes):
        w = catch_up(m, w)
        for i in range(m.s.nodes):
            if w.nodes[i].st == "read" and w.nodes[i].nonce >= 0:
                w = m.unload(w, i)  # its checkpoint was lost with a broker, so the deadline of the load ends it
        newest = m.truth(w.log)[0][w.hw]
        idle = [(i, n) for i, n in enumerate(w.nodes) if n.st == "idle" or (n.st == "read" and n.nonce < 0)]
        willing = [i for i, n in idle if m.may_take(m.node_id(w, i), n, newest.node, newest.generation)]
        if not willing:
            if sum(n.st == "active" for n in w.nodes) == 1:
                return
            if not may_rejoin:
                raise Violation("I9 nobody serves the partition")
            may_rejoin, w = False, m.join(w, 0, newest.generation)
        for i in willing:
            w = m.take(w, i, newest.cur + 1, newest.generation)
    raise Violation("I9 nodes fight over the partition")


class Result(NamedTuple):
    states: int
    depth: int
    seconds: float
    complete: bool
    broken: str = ""
    trace: tuple[str, ...] = ()


def bfs(model: Model, sample: int = 53, states_max: int = 1_000_000, limit_s: float = math.inf) -> Result:
    """Breadth first, so that the first violation has a shortest trace. Visited states are kept as hashes.

    Tests bound the states, so that no verdict depends on how busy the machine is.
    """
    began, first = time.monotonic(), model.initial()
    parent: dict[int, tuple[int | None, str]] = {hash(first): (None, "")}
    queue, depth = deque([(first, 0)]), 0

    def trace(h: int, last: str) -> tuple[str, ...]:
        out = [last]
        before, label = parent[h]
        while before is not None:
            out.append(label)
            before, label = parent[before]
        return tuple(reversed(out))

    while queue:
        w, depth = queue.popleft()
        here = hash(w)
        if len(parent) > states_max or time.monotonic() - began > limit_s:
            return Result(len(parent), depth, time.monotonic() - began, False)
        label = "settle: faults stop, a node loads"
        try:
            if sample and here % sample == 0:
                settle(model, w)
            for label, act in model.moves(w):
                nxt = act()
                h = hash(nxt)
                if h not in parent:
                    if nxt.start != w.start or nxt.snaps != w.snaps or nxt.hw != w.hw:
                        model.check_fresh(nxt)
                    parent[h] = (here, label)
                    queue.append((nxt, depth + 1))
        except Violation as v:
            return Result(len(parent), depth + 1, time.monotonic() - began, True, str(v), trace(here, label))
    return Result(len(parent), depth, time.monotonic() - began, True)


#: What a step of a random walk is called that should be rare.
FAULTS = (
    "crash",
    "lost",
    "fail-over",
    "starts as",
    "is killed",
    "loses its state",
    "wrongly",
    "recreated",
    "another program",
)


def weight(label: str) -> float:
    """Say how likely a step of a random walk is: faults are rarer than work."""
    if any(fault in label for fault in FAULTS):
        return 0.15
    return 0.5 if "checkpoint epoch" in label or "is given" in label or "by force" in label else 1


def walk(model: Model, seed: int, steps: int = 200) -> tuple[str, list[str], int]:
    """Take random steps; returns the violation ("" if none), the labels of the steps, and the length of the log."""
    rng, w = random.Random(seed), model.initial()
    labels: list[str] = []
    try:
        for _ in range(steps):
            options = list(model.moves(w))
            if not options:
                break
            weights = [weight(label) for label, _ in options]
            label, act = rng.choices(options, weights)[0]
            labels.append(label)
            w = act()
            model.check_fresh(w)
        labels.append("settle")
        settle(model, w)
    except Violation as v:
        return str(v), labels, len(w.log)
    return "", labels, len(w.log)


SCOPES = {
    "fencing": Scope(Left(take=3, write=2, read=1)),
    "failures": Scope(Left(take=3, write=2, stop=2, drop=1)),
    "restart": Scope(Left(take=2, write=2, stop=1), nodes=1),
    "three": Scope(Left(take=3, write=2, read=1), nodes=3),
    "hw": Scope(Left(take=2, write=2, read=1), hw_lag=True),
    "warm": Scope(Left(take=3, write=2, read=1), warm=True),
    "deletes": Scope(Left(take=2, write=2, delete=2, read=1)),
    "prune": Scope(Left(take=3, write=2, refresh=1, cold=1, prune=2)),
    "prune2": Scope(Left(take=2, write=3, refresh=2, cold=2, prune=2, stop=1), nodes=1),
    "snaps": Scope(Left(take=2, write=2, refresh=1, cold=1, prune=1, job=2, zombie=1, compact=2), nodes=1),
    "snapdel": Scope(Left(take=2, write=1, delete=1, refresh=1, prune=1, job=2, zombie=1, fresh=1, compact=3), nodes=1),
    "freshjob": Scope(Left(take=1, write=3, refresh=1, prune=1, job=3, fresh=1, compact=2), nodes=1),
    "nolag": Scope(Left(take=2, write=2, stop=1, refresh=1, prune=1, job=2, compact=1), nodes=1, lag=False),
    "moving": Scope(Left(take=2, write=1, refresh=1, prune=1, job=1), nodes=2),
    "stale": Scope(Left(take=2, write=1, read=1), stale_leader=True),
    "gap": Scope(Left(take=1, write=2, drop=1), nodes=1, ignore="I8"),
    "snaps2": Scope(Left(take=2, write=2, delete=1, stop=1, refresh=1, prune=1, job=2, zombie=1, compact=2)),
    "jobvoid": Scope(Left(take=3, write=2, job=1)),
    "ahead": Scope(Left(take=2, write=1, delete=1, refresh=1, prune=1), warm=True, cold=False),
    "owners": Scope(Left(take=3, write=0, stop=1, start=1, join=1, force=1)),
    "handover": Scope(Left(take=3, write=1, stop=1, join=1)),
    "static": Scope(Left(take=3, write=0, stop=1, start=2)),
    "forgotten": Scope(Left(take=2, write=0, join=1, start=1, forget=1)),
    "fellback": Scope(Left(take=2, write=1, refresh=1, cold=1, name=1, prune=1, fallback=1)),
    "fellback2": Scope(Left(take=2, write=1, refresh=2, name=1, prune=1, fallback=1)),
    "wiped": Scope(Left(take=2, write=1, refresh=1, cold=1, name=1, wipe=1)),
    "wiped2": Scope(Left(take=2, write=1, refresh=2, name=2, wipe=2)),
    "wipedcut": Scope(Left(take=2, write=1, refresh=1, cold=1, name=1, prune=1, wipe=1)),
    "wipeddel": Scope(Left(take=2, write=1, delete=1, refresh=1, name=1, prune=1, wipe=1)),
    "told": Scope(Left(take=2, write=1, refresh=1, cold=1, name=1, prune=1, told=1), warm=True),
    "tolddel": Scope(Left(take=2, write=1, delete=1, refresh=1, name=1, prune=1, told=1), warm=True),
    "fellbackdel": Scope(Left(take=2, write=1, delete=1, refresh=1, name=1, prune=1, fallback=1)),
}
BIG = Scope(
    Left(
        take=12,
        write=14,
        delete=3,
        read=6,
        stop=4,
        refresh=6,
        cold=6,
        prune=6,
        drop=2,
        job=9,
        zombie=4,
        fresh=1,
        compact=8,
    ),
    nodes=3,
    keys=2,
    hw_lag=True,
    lag=False,
    warm=True,
)
BIG_FALLBACK = replace(BIG, left=BIG.left._replace(name=8, fallback=4, wipe=2, told=3))
BIG_OWNERS = replace(BIG, left=BIG.left._replace(start=4, join=4, force=2, forget=1))
MUTANTS = {
    "answer at append": (replace(REPAIRED, answer="append"), "fencing"),
    "skip the epoch check": (replace(REPAIRED, epoch_check=False), "fencing"),
    "load ends at the watermark seen at start": (replace(REPAIRED, load_until="hw", seq=False), "fencing"),
    "equal epochs both win": (replace(REPAIRED, equal="both", seq=False), "fencing"),
    "prune at any offset": (replace(REPAIRED, prune_at="any"), "prune"),
    "prune at any checkpoint": (replace(REPAIRED, prune_at="any_checkpoint"), "prune"),
    "snapshot topic before log start": (replace(VERSIONED, snap_after_start=False, scan="once"), "moving"),
    "read without read-index": (replace(REPAIRED, read="none"), "fencing"),
    "job ignores the epoch rule": (replace(VERSIONED, job_epoch_rule=False), "jobvoid"),
    "hole 1: own checkpoint known by node id": (replace(REPAIRED, own_by="node", seq=False), "restart"),
    "hole 2: no numbering, gap in the log": (replace(REPAIRED, seq=False), "failures"),
    "hole 3: tail compares offsets only": (replace(REPAIRED, tail_match="offset", seq=False), "gap"),
    "hole 4: answer without records not read-indexed": (replace(REPAIRED, recordless="parked"), "deletes"),
    "hole 5: refresh under a new epoch, pipelined": (replace(REPAIRED, refresh="bump", seq=False), "prune"),
    "hole 6: prune on the snapshot topic, zombie job": (replace(VERSIONED, snap_key="key"), "snaps"),
    "hole 7: the same with a deleted key": (replace(VERSIONED, snap_key="key"), "snapdel"),
    "hole 7b: deleted key pruned without its marker": (replace(VERSIONED, marker=False), "snapdel"),
    "hole 8: job without its state folds onto nothing": (replace(VERSIONED, no_base="fold"), "freshjob"),
    "hole 9: compaction outruns a load": (replace(VERSIONED, scan="once"), "nolag"),
    "assumption: ListOffsets from a stale leader": (REPAIRED, "stale"),
    "load goes on from a log start that moved past it": (replace(REPAIRED, out_of_range="go on"), "ahead"),
    "nodes retake from an equal generation": (replace(GENERATION, take_by="not_newer"), "owners"),
    "a node does not retake from its own late checkpoint": (replace(GENERATION, take_by="lower_only"), "owners"),
    "a checkpoint carries only its node's generation": (replace(GENERATION, generation="own"), "owners"),
    "a group hands out Kafka's generation": (replace(GENERATION, hands_out="group"), "forgotten"),
    "a higher generation in the log asks for no rebalance": (replace(GENERATION, rejoins=False), "forgotten"),
    "fell back: a log start is trusted": (REPAIRED, "fellback"),
    "fell back: only what counts from there is believed": (replace(FALLBACK, beginning="counted"), "fellback"),
    "fell back: records below the cut count": (replace(FALLBACK, beginning="kept"), "fellback"),
    "fell back: the state below the cut is kept": (replace(FALLBACK, beginning="state"), "fellback2"),
    "fell back: a cut is named too early": (replace(FALLBACK, naming="early"), "fellback"),
    "wiped: a log start is trusted": (REPAIRED, "wiped"),
    "wiped: a cut is named too early": (replace(FALLBACK, naming="early"), "wiped"),
    "told: a log start is trusted": (REPAIRED, "told"),
    "wiped: nothing is written again": (replace(FALLBACK, rewrites=False), "wiped"),
}
#: Rules that are weaker and yet break nothing here.
HOLD_TOO = {"fell back: any checkpoint's name is believed": (replace(FALLBACK, beginning="any"), "fellback")}


NAMED_RULES: dict[str, Rules] = {
    "repaired": REPAIRED,
    "generation": GENERATION,
    "fallback": FALLBACK,
    "versioned": VERSIONED,
    "design": DESIGN,
    "barrier": replace(REPAIRED, read="barrier"),
    "manifests": MANIFESTS,
    "early": EARLY,
}


def settle_every(rules: Rules, is_mutant: bool) -> int:
    """Say on one state in how many `settle` is tried; 0 is never, so that traces of mutants are the same in every run."""
    is_about_liveness = rules.take_by != "anyone" or not rules.rewrites
    return 1 if is_about_liveness else 0 if is_mutant else 53


def big(rules: Rules) -> Model:
    """Make the model that the random walks go through."""
    if isinstance(rules, ManifestRules):
        return ManifestModel(rules, BIG_MANIFESTS)
    return Model(rules, {GENERATION: BIG_OWNERS, FALLBACK: BIG_FALLBACK}.get(rules, BIG))


def searches(rules: Rules, scopes: list[str] | None, mutants: bool) -> Iterator[tuple[str, str, Model, int, bool]]:
    """Yield (name, scope, model, on one state in how many `settle` is tried, whether it must break)."""
    if mutants:
        for name, (mutant, scope) in MUTANTS.items():
            yield name, scope, Model(mutant, SCOPES[scope]), settle_every(mutant, is_mutant=True), True
        for name, (broken, scope, breaks) in MANIFEST_MUTANTS.items():
            model = ManifestModel(broken, MANIFEST_SCOPES[scope])
            yield name, scope, model, manifest_settle_every(scope, breaks), True
        for name, (weaker, scope) in HOLD_TOO.items():
            yield name, scope, Model(weaker, SCOPES[scope]), 53, False
        for name, (also, scope) in ALSO_HOLDS.items():
            yield name, scope, ManifestModel(also, MANIFEST_SCOPES[scope]), 53, False
    elif isinstance(rules, ManifestRules):
        for scope in scopes or MANIFEST_SCOPES:
            yield scope, scope, ManifestModel(rules, MANIFEST_SCOPES[scope]), manifest_settle_every(scope), False
    else:
        for scope in scopes or SCOPES:
            yield scope, scope, Model(rules, SCOPES[scope]), settle_every(rules, is_mutant=False), False


def manifest_settle_every(scope: str, breaks: str = "") -> int:
    """Say the same for a scope of the manifests, where mutants of liveness, too, are to have a shortest trace."""
    return 0 if scope in UNSETTLED or breaks == "I11" else 1 if breaks else 53


def main() -> int:
    """Run the searches or walks the command line asks for; returns the exit code."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--rules", choices=sorted(NAMED_RULES), default="repaired")
    p.add_argument("--scope", action="append", help="exhaustive search of these (default: all)")
    p.add_argument("--seconds", type=float, default=60, help="limit for each search")
    p.add_argument("--mutants", action="store_true", help="show that each broken rule is caught, with a shortest trace")
    p.add_argument("--traces", action="store_true", help="with --mutants: print the traces")
    p.add_argument("--walk", type=int, metavar="SEEDS", help="random walks over a large configuration")
    a = p.parse_args()
    rules = NAMED_RULES[a.rules]
    failed = 0
    if a.walk:
        began, total = time.monotonic(), 0
        for seed in range(a.walk):
            bad, labels, _ = walk(big(rules), seed)
            total += len(labels)
            if bad:
                failed += 1
                print(f"seed {seed}: {bad} after {len(labels)} steps")
        print(f"{a.walk} walks, {total} steps, {failed} failed, {time.monotonic() - began:.0f} s")
        return failed > 0
    for name, scope, model, sample, must_break in searches(rules, a.scope, a.mutants):
        out = bfs(model, sample, sys.maxsize, a.seconds)
        failed += bool(out.broken) != must_break
        print(
            f"{name:48} {scope:9} {out.states:8} states depth {out.depth:2} {out.seconds:5.0f} s "
            f"{'' if out.complete else '(not finished) '}{out.broken or 'ok'}",
            flush=True,
        )
        if out.broken and (a.traces or not must_break):
            print("".join(f"    {n:2}. {t}\n" for n, t in enumerate(out.trace, 1)), end="")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
