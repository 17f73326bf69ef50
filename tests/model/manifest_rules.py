"""The rules of restores from snapshots, of the job and of what the owner may remove, as switches of the model."""

from dataclasses import dataclass
from typing import Final

from tests.model.world import Rules


@dataclass(frozen=True)
class ManifestRules(Rules):
    """The rules of a restore. Every other value is a mutant, or a proposal that the model was asked about."""

    #: The number of live keys is compared.
    count: bool = True
    #: The sum over (key, covered offset, content) is compared.
    total: bool = True
    #: Entries above O are used too.
    above: bool = False
    #: The log record at O is read and compared.
    record: bool = True
    #: So is the newest checkpoint at or below O, which the manifest names, unless it was cut off.
    checkpoint: bool = True
    #: Manifests of another topic id are ignored.
    manifest_topic: bool = True
    #: Entries carry the topic id in their "key", and those of another one are ignored | "value": not in their key |
    #: "none": not at all.
    entry_topic: str = "key"
    #: The position after O: "all" | "sequence": without the next sequence | "attempt": without its id.
    carry: str = "all"
    #: A batch writes its "entries" first | "manifest".
    order: str = "entries"
    #: A manifest is written although a key waits for its base.
    waiting: bool = False
    #: Where a job that starts from scratch may write manifests: from the end of the log, "asked after" it knows the start |
    #: "asked before" | "checkpoint": once it has read a second one that counts | "never" asked: anywhere.
    complete: str = "asked after"
    #: A manifest says what the whole "log" says at O | "load": what a load from the log's start has there.
    says: str = "log"
    #: Entries covered below the log start are "ignored" | "used" | "cleaned": used, the job cleans up.
    below_start: str = "ignored"
    #: Only manifests with O < own checkpoint.
    below_own: bool = True
    #: Log start <= O: "at" | "after": log start <= O + 1 | "any".
    start: str = "at"
    #: The log start is queried "after" the snapshot topic was read | "before".
    start_asked: str = "after"
    #: A job behind the log start starts "afresh" | "go on": from there.
    over_cut: str = "afresh"
    #: A job goes on if the log still holds the record that it read "last and checkpoint": the newest one, unless it was cut off |
    #: "last": the record alone | "checkpoint": that alone | "counted": it, and the record that counted last | "unaware": as it is.
    resumes: str = "last and checkpoint"
    #: A deleted key becomes an entry.
    tombstones: bool = True
    #: The owner removes entries below the log start, and those that a newer one of their key, covered at or below the
    #: older of the two newest verified manifests, has "superseded" | "early": a newer one wherever it is covered |
    #: "needed": all at or below the newest verified O that neither manifest needs | "ordered": the same, but a deleted
    #: entry only after the older ones of its key | "any": all that neither needs, those above O too.
    nulls: str = "superseded"
    #: The job compares the topic id, and starts from scratch in a topic that was recreated.
    job_topic: bool = True


MANIFESTS: Final = ManifestRules()
