"""What the search explores of manifests and restores: scopes, a large configuration for walks, and the mutants."""

from dataclasses import replace

from tests.model.manifest_rules import MANIFESTS, ManifestRules
from tests.model.world import Left, Scope

#: Manifests wherever no key waits: what a load of the whole log would hold there, but not always all live keys (I11).
EARLY = replace(MANIFESTS, complete="never", says="load")

MANIFEST_SCOPES = {
    "batches": Scope(Left(take=2, write=2, stop=1, job=2, kill=1), nodes=1, direct=True),
    "deleted": Scope(Left(take=2, write=1, delete=1, stop=1, job=2, kill=1, null=1, compact=1), nodes=1, direct=True),
    "torn": Scope(
        Left(take=2, write=2, delete=1, stop=1, job=3, null=1, compact=2), nodes=1, direct=True, torn=True, warm=True
    ),
    "corrupt": Scope(Left(take=2, write=2, stop=1, job=2, corrupt=1, fresh=1), nodes=1, direct=True),
    "gap": Scope(Left(take=2, write=3, stop=1, drop=1, job=1), nodes=1),
    "rivals": Scope(Left(take=2, write=2, job=1)),
    "handover": Scope(Left(take=2, write=2, job=2), warm=True, cold=False),
    "lag": Scope(Left(take=2, write=2, job=2, stop=1), nodes=1, hw_lag=True),
    "cutone": Scope(Left(take=2, write=1, stop=1, refresh=1, cold=1, prune=1, job=2), nodes=1, direct=True),
    "cut": Scope(Left(take=2, write=2, stop=1, refresh=1, cold=1, prune=1, job=2), nodes=1, direct=True),
    "cutdel": Scope(
        Left(take=2, write=1, delete=1, stop=1, refresh=1, prune=1, job=2),
        nodes=1,
        direct=True,
        warm=True,
        cold=False,
    ),
    "cutfresh": Scope(Left(take=2, write=2, stop=1, refresh=1, cold=1, prune=1, job=2, fresh=1), nodes=1, direct=True),
    "cutnull": Scope(
        Left(take=2, write=2, stop=1, refresh=1, cold=1, prune=1, job=2, null=1),
        nodes=1,
        direct=True,
        warm=True,
        cold=False,
    ),
    "cutowners": Scope(Left(take=3, write=2, refresh=1, cold=1, prune=1, job=1), direct=True, warm=True, cold=False),
    "jobs": Scope(Left(take=1, write=1, delete=1, refresh=1, prune=1, job=3), nodes=1, direct=True, jobs=2),
    "jobnull": Scope(Left(take=1, write=1, delete=1, job=3, null=1), nodes=1, direct=True, jobs=2),
    "jobkill": Scope(Left(take=2, write=2, delete=1, stop=1, job=2, kill=1), nodes=1, direct=True, jobs=2),
    "nulls": Scope(Left(take=2, write=2, delete=1, stop=1, job=3, null=2), nodes=1, direct=True, warm=True, cold=False),
    "nullkill": Scope(Left(take=2, write=2, delete=1, stop=1, job=3, kill=1, null=1), nodes=1, direct=True),
    "again": Scope(Left(take=3, write=3, stop=1, refresh=1, job=2, again=1), nodes=1, direct=True),
    "againnull": Scope(Left(take=2, write=2, job=2, again=1, null=1), nodes=1, direct=True),
    "keys": Scope(Left(take=2, write=2, delete=1, stop=1, job=2), nodes=1, keys=2, direct=True),
    "othertry": Scope(Left(take=3, write=2, stop=1, job=1, unclean=2), nodes=1, direct=True),
    "unclean": Scope(Left(take=3, write=2, job=1, unclean=1), nodes=1, direct=True),
    "lostend": Scope(Left(take=3, write=2, refresh=1, job=2, unclean=1), nodes=1, direct=True),
    "lostend2": Scope(Left(take=4, write=2, job=3, unclean=2), nodes=1, direct=True),
    "lostvoid": Scope(Left(take=4, write=0, job=2, unclean=1), direct=True),
}
#: Searched without `settle`: entries of what was lost below the watermark keep manifests from verifying until their key changes.
UNSETTLED = {"unclean", "othertry", "lostend", "lostend2", "lostvoid"}

BIG_MANIFESTS = Scope(
    Left(
        take=12,
        write=14,
        delete=4,
        stop=5,
        refresh=6,
        cold=6,
        prune=6,
        drop=1,
        job=14,
        kill=3,
        fresh=2,
        null=8,
        compact=8,
        corrupt=1,
        again=1,
    ),
    nodes=3,
    keys=2,
    jobs=2,
    hw_lag=True,
    warm=True,
    torn=True,
)


def unlike(**values: object) -> ManifestRules:
    """Give the rules with some of them broken."""
    return replace(MANIFESTS, **values)  # type: ignore[arg-type]  # checked by the dataclass's own field names


#: Name to (rules, scope, the invariant that it breaks).
MANIFEST_MUTANTS = {
    "no sum": (unlike(total=False), "corrupt", "I4"),
    "neither sum nor count": (unlike(total=False, count=False), "corrupt", "I4"),
    "entries above O used": (unlike(above=True), "batches", "I4"),
    "record at O not read": (unlike(record=False), "unclean", "I5"),
    "newest checkpoint not read, another attempt has its epoch": (unlike(checkpoint=False), "othertry", "I4"),
    "no topic id in manifests, newest checkpoint not read": (
        unlike(manifest_topic=False, checkpoint=False),
        "again",
        "I4",
    ),
    "no topic id in entries": (unlike(entry_topic="none"), "again", "I9"),
    "topic id not in the keys": (unlike(entry_topic="value"), "againnull", "I9"),
    # Alone it changes nothing: the job would find another record where it read one last.
    "job goes on in a recreated topic, and compares nothing": (
        unlike(job_topic=False, resumes="unaware"),
        "again",
        "I11",
    ),
    "next sequence not carried": (unlike(carry="sequence"), "gap", "I4"),
    "attempt id not carried": (unlike(carry="attempt"), "cut", "I4"),
    "manifest before its entries, no sum": (unlike(order="manifest", total=False), "batches", "I4"),
    "manifest at or above the own checkpoint": (unlike(below_own=False), "rivals", "I4"),
    "manifest below the log start, no record": (unlike(start="any", record=False), "cut", "I4"),
    "the same, and reads on from the start": (unlike(start="any", record=False, out_of_range="go on"), "cut", "I4"),
    "fold goes on over a cut": (unlike(over_cut="go on"), "cut", "I11"),
    "job goes on after a lost end": (unlike(resumes="unaware"), "lostend", "I11"),
    "job compares what it read last alone, another attempt has its epoch": (unlike(resumes="last"), "lostend", "I11"),
    "job compares the newest checkpoint alone": (unlike(resumes="checkpoint"), "lostend", "I11"),
    "job compares what counted last, void records make way": (unlike(resumes="counted"), "lostvoid", "I11"),
    "deleted key not written": (unlike(tombstones=False), "deleted", "I9"),
    "manifest before every live key was read": (unlike(complete="never"), "cut", "I11"),
    "the same, and a key waits for its base": (unlike(complete="never", waiting=True), "cut", "I11"),
    "end of the log asked before its start": (unlike(complete="asked before"), "cutfresh", "I11"),
    "entries below the log start used": (unlike(below_start="used"), "cutdel", "I9"),
    "clean-up by the job, late job": (unlike(below_start="cleaned"), "jobs", "I9"),
    "clean-up before every live key was read": (unlike(below_start="cleaned", complete="never"), "cut", "I11"),
    "owner removes what neither manifest needs": (unlike(nulls="needed"), "nulls", "I9"),
    "the same in order, late job": (unlike(nulls="ordered"), "jobnull", "I9"),
    "owner removes entries above O": (unlike(nulls="any"), "nulls", "I9"),
    "owner removes before a manifest verifies": (unlike(nulls="early"), "nulls", "I9"),
}

#: What holds as well: a check less where another one covers it, or another rule. Name to (rules, scope).
ALSO_HOLDS = {
    "no count": (unlike(count=False), "corrupt"),
    "manifest before its entries": (unlike(order="manifest"), "batches"),
    "record at O not read": (unlike(record=False), "cutone"),
    "log start not compared": (unlike(start="any"), "cutone"),
    "log start may be O + 1": (unlike(start="after"), "cutone"),
    "log start asked before the topic": (unlike(start_asked="before"), "cutone"),
    "a key may wait for its base": (unlike(waiting=True), "cutone"),
    "a second checkpoint instead of the end": (unlike(complete="checkpoint"), "cutone"),
    "early manifests": (EARLY, "cutone"),
}
