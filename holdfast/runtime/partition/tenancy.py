"""The memory that a node keeps of one log partition from load to load."""

from holdfast.records.log.checkpoint import Checkpoint, encode_checkpoint
from holdfast.records.log.fencing import Position
from holdfast.runtime.errors import Alarm, CoordinatorError, LoadInProgress, NotCoordinator
from holdfast.runtime.partition.ownership import Ownership, may_take
from holdfast.runtime.settings import LogTrust, PartitionConfig


class Tenancy:
    """The generation and orders by which a node takes one log partition, and how far it has seen the log committed."""

    def __init__(self, index: int, config: PartitionConfig, trust: LogTrust) -> None:
        self.index = index
        self.config = config
        #: None: static; the first claim sets it to 1 + the highest generation in the log.
        self.generation: int | None = None
        self.is_static = True
        #: Reason of an admin who accepts the log as it is; kept until a checkpoint of ours has carried it.
        self.accept_reason: str | None = None
        #: An admin has ordered us to take the partition from any owner; kept until we serve.
        self.takes_over = False
        #: Offset after our newest record that counted, over all loads of this process.
        self.committed_offset = 0
        #: Position of a reader after that record; every reader finds it again unless the record was lost. None: nothing was committed.
        self.committed_position: Position | None = None
        #: Lowest end of the log that was below `committed_offset`; None once the missing end is found, or an admin accepts its loss.
        self.lost_from: int | None = None
        #: As far as we know, another node serves the partition until this one has loaded it.
        self.is_served_elsewhere = False
        #: The broker that leads the log partition does not answer: operations would wait, and another node may have taken the partition.
        self.is_out_of_reach = False
        self._trust = trust

    def assign(self, generation: int) -> None:
        """Set the generation under which a group assigns the partition, or takes it back."""
        self.generation = generation
        self.is_static = False

    def take_over(self) -> None:
        """Take the partition from any owner, on an admin's order; the claim finds its generation in the log."""
        self.generation = None
        self.takes_over = True

    def accept(self, reason: str) -> None:
        """Set why an admin accepts the log as it is."""
        self.accept_reason = reason

    def forget_acceptance(self) -> None:
        """Drop an acceptance, because the partition will not be loaded now."""
        self.accept_reason = None

    def serve(self) -> None:
        """Drop the admin's orders for the load that has just ended."""
        self.accept_reason = None
        self.takes_over = False

    def note_served_elsewhere(self, is_served_elsewhere: bool) -> None:
        """Set whether another node serves the partition until this one has loaded it."""
        self.is_served_elsewhere = is_served_elsewhere

    def note_out_of_reach(self, is_out_of_reach: bool) -> None:
        """Set whether the broker that leads the log partition does not answer."""
        self.is_out_of_reach = is_out_of_reach

    def renew_config(self, config: PartitionConfig) -> None:
        """Use another configuration from the next load on."""
        self.config = config

    def log_alarm(self) -> Alarm | None:
        """Return why no partition of this log may be taken, unless an admin accepts this one."""
        return None if self.accept_reason is not None else self._trust.alarm

    def find_lost_end(self, end_offset: int) -> None:
        """Compare the end of the log with the committed offset.

        The log may lose more before an admin accepts it; the loss then begins at the lowest end.
        """
        if end_offset < (self.committed_offset if self.lost_from is None else self.lost_from):
            self.lost_from = end_offset

    def find_end_again(self, offset: int, position: Position) -> bool:
        """Compare a record with our newest one that counted; returns whether the log holds all that was committed after all.

        If it does, the shorter end came from a former leader.
        """
        if offset + 1 != self.committed_offset or position != self.committed_position:
            return False
        self.lost_from = None
        return True

    def refuse_while_loading(self) -> CoordinatorError:
        """Return why an operation is refused while the partition loads; the class says whether the caller should look for another node."""
        if self.is_served_elsewhere:
            return NotCoordinator("the log partition is being loaded, and another node serves it meanwhile")
        return LoadInProgress("the log partition is being loaded")

    def may_take(self, winner: Checkpoint | None) -> bool:
        """Tell whether this node may take the partition from the owner of the newest checkpoint."""
        return self.generation is None or may_take(winner, self.generation, self.config.node_id)

    def outbid_twin(self, winner: Checkpoint) -> None:
        """Raise our generation above that of a twin with our node id; with equal ones both would take the partition in turn for ever."""
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
                placement=identity.placement,
                reason=reason,
                advertised_address=self.config.advertised_address,
                accepted_reason=accepted_reason,
                cut_offset=cut_offset,
            )
        )

    def _known_generation(self) -> int:
        assert self.generation is not None  # a claim sets it, and nothing is appended or compared before
        return self.generation
