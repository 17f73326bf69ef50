"""What a node keeps of one log partition from load to load."""

from holdfast.records.checkpoint import Checkpoint, encode_checkpoint
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
        #: Where the log ended when it was found shorter than what was committed; known until an admin accepts it.
        self.lost_from: int | None = None
        #: Another node serves the partition until this one has loaded it, as far as is known.
        self.is_served_elsewhere = False
        self._trust = trust
        #: The highest of any checkpoint that counted, over all loads of this process.
        self._generation_seen = 0

    def log_alarm(self) -> Alarm | None:
        """Return why no partition of this log may be taken, unless an admin accepts this one."""
        return None if self.accept_reason is not None else self._trust.alarm

    def find_lost_end(self, end_offset: int) -> None:
        """Compare the end of the log with what was committed.

        It may lose more before an admin accepts it; what was lost then begins at the lowest end.
        """
        if end_offset < (self.committed_offset if self.lost_from is None else self.lost_from):
            self.lost_from = end_offset

    def refuse_while_loading(self) -> CoordinatorError:
        """Return why an operation is refused while the partition loads; who reads it looks up who serves, if anybody does."""
        if self.is_served_elsewhere:
            return NotCoordinator("the log partition is being loaded, and another node serves it meanwhile")
        return LoadInProgress("the log partition is being loaded")

    def may_take(self, winner: Checkpoint | None) -> bool:
        """Tell whether this node may take the partition from the owner of the newest checkpoint."""
        return self.generation is None or may_take(winner, self.generation, self.config.node_id)

    def see_generation(self, generation: int) -> None:
        """Remember the generation of a checkpoint that counted."""
        self._generation_seen = max(self._generation_seen, generation)

    def highest_generation(self) -> int:
        """Return the highest generation that this process was given for the partition, or has seen in its log."""
        return max(self._generation_seen, self.generation or 0)

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
