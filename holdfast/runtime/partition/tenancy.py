"""What a node keeps of one log partition from load to load."""

from holdfast.records.log.checkpoint import Checkpoint, encode_checkpoint
from holdfast.records.log.fencing import Position
from holdfast.runtime.errors import Alarm, CoordinatorError, LoadInProgress, NotCoordinator
from holdfast.runtime.partition.ownership import Ownership, may_take
from holdfast.runtime.settings import LogTrust, PartitionConfig


class Tenancy:
    """On whose word a node takes one log partition, and how far it knows its log to be committed."""

    def __init__(self, index: int, config: PartitionConfig, trust: LogTrust) -> None:
        self.index = index
        self.config = config
        #: None: static, becomes 1 + the highest in the log when the partition is claimed first.
        self.generation: int | None = None
        self.is_static = True
        #: Of an admin who accepts the log as it is; until a checkpoint of ours has carried it.
        self.accept_reason: str | None = None
        #: An admin said so, whoever serves; until we do.
        self.takes_over = False
        #: Offset behind the newest record of ours that counted, over all loads of this process.
        self.committed_offset = 0
        #: Behind that record: what a reader finds there again as long as it was not lost; None: nothing was committed.
        self.committed_position: Position | None = None
        #: Where the log ended when it was found shorter than what was committed; known until that is found, or an admin accepts it.
        self.lost_from: int | None = None
        #: Another node serves the partition until this one has loaded it, as far as is known.
        self.is_served_elsewhere = False
        #: The broker that leads the log partition does not answer: whatever was taken in would wait, and others may have taken it over.
        self.is_out_of_reach = False
        self._trust = trust

    def assign(self, generation: int) -> None:
        """Keep the generation under which a group hands the partition out, or takes it back."""
        self.generation = generation
        self.is_static = False

    def take_over(self) -> None:
        """Keep that an admin wants the partition here, whoever serves it; the claim finds its generation in the log."""
        self.generation = None
        self.takes_over = True

    def accept(self, reason: str) -> None:
        """Keep why an admin accepts the log as it is."""
        self.accept_reason = reason

    def forget_acceptance(self) -> None:
        """Accept nothing any more: the partition is not to be loaded now."""
        self.accept_reason = None

    def serve(self) -> None:
        """End what an admin said for the load that has just ended."""
        self.accept_reason = None
        self.takes_over = False

    def note_served_elsewhere(self, is_served_elsewhere: bool) -> None:
        """Keep whether another node serves the partition until this one has loaded it."""
        self.is_served_elsewhere = is_served_elsewhere

    def note_out_of_reach(self, is_out_of_reach: bool) -> None:
        """Keep whether the broker that leads the log partition does not answer."""
        self.is_out_of_reach = is_out_of_reach

    def renew_config(self, config: PartitionConfig) -> None:
        """Follow another configuration from the next load on."""
        self.config = config

    def log_alarm(self) -> Alarm | None:
        """Return why no partition of this log may be taken, unless an admin accepts this one."""
        return None if self.accept_reason is not None else self._trust.alarm

    def find_lost_end(self, end_offset: int) -> None:
        """Compare the end of the log with what was committed.

        It may lose more before an admin accepts it; what was lost then begins at the lowest end.
        """
        if end_offset < (self.committed_offset if self.lost_from is None else self.lost_from):
            self.lost_from = end_offset

    def find_end_again(self, offset: int, position: Position) -> bool:
        """Compare a record with the newest of ours that counted; returns whether the log holds all that was committed after all.

        A leader of the past told of a shorter log then.
        """
        if offset + 1 != self.committed_offset or position != self.committed_position:
            return False
        self.lost_from = None
        return True

    def refuse_while_loading(self) -> CoordinatorError:
        """Return why an operation is refused while the partition loads; who reads it looks up who serves, if anybody does."""
        if self.is_served_elsewhere:
            return NotCoordinator("the log partition is being loaded, and another node serves it meanwhile")
        return LoadInProgress("the log partition is being loaded")

    def may_take(self, winner: Checkpoint | None) -> bool:
        """Tell whether this node may take the partition from the owner of the newest checkpoint."""
        return self.generation is None or may_take(winner, self.generation, self.config.node_id)

    def outbid_twin(self, winner: Checkpoint) -> None:
        """Raise our generation over that of a twin under our node id, which would take the partition back for ever."""
        if winner.generation == self.generation and self.is_static:
            self.generation = winner.generation + 1

    def encode_checkpoint(
        self, ownership: Ownership, attempt_id: bytes, reason: str | None, accepted_reason: str | None, cut_offset: int
    ) -> bytes:
        """Return the value of a checkpoint of our attempt."""
        identity = self.config.log
        return encode_checkpoint(
            Checkpoint(
                owner_epoch=ownership.epoch,
                attempt_id=attempt_id,
                node_id=self.config.node_id,
                generation=self._known_generation(),
                cluster_id=identity.cluster_id,
                topic_id=identity.topic_id,
                partition_count=identity.partition_count,
                reason=reason,
                advertised_address=self.config.advertised_address,
                accepted_reason=accepted_reason,
                cut_offset=cut_offset,
            )
        )

    def _known_generation(self) -> int:
        assert self.generation is not None  # a claim sets it, and nothing is appended or compared before
        return self.generation
