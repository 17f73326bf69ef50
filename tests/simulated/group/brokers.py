"""The brokers as group coordinators: one of them has the group, and it moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.membership.requests import Refused
from tests.simulated.group.group import EMPTY, Enclosed, Group, Respond

#: Their names as parties of the network.
BROKERS = ("broker 0", "broker 1", "broker 2")


class GroupBrokers:
    """Three brokers, one of which coordinates the group."""

    def __init__(
        self, random: Random, now_ms: Callable[[], int], handed_in: Callable[[Group, Mapping[str, bytes]], None]
    ) -> None:
        self._random = random
        self._now_ms = now_ms
        self._handed_in = handed_in
        self._ids = 0
        self._initial_delay_ms = random.choice((0, 0, 300))
        #: Who coordinates; None: nobody yet.
        self.coordinator: str | None = random.choice(BROKERS)
        self._loading_until_ms = 0
        self.frozen: set[str] = set()
        #: Who coordinated before and does not know that it is over, with its copy of the group.
        self.former: str | None = None
        self._former_group: Group | None = None
        self._former_until_ms = 0
        #: Brokers that still name it.
        self._believers: set[str] = set()
        self.formers = 0
        self.rebalances_before = 0
        self.group = self._make_group()

    def _make_group(self) -> Group:
        group = Group(self._now_ms, self._make_id, self._initial_delay_ms)
        group.handed_in = self._handed_in
        return group

    def _make_id(self) -> str:
        self._ids += 1
        # Ids of Kafka's are random, so the order of members is not that of their joins.
        return f"m{self._random.randrange(1_000):03}-{self._ids}"

    def handle(self, broker: str, enclosed: Enclosed, respond: Respond) -> None:
        """Let a broker take a request; one that stands still takes none."""
        if broker in self.frozen:
            return
        if broker == self.former:
            assert self._former_group is not None
            self._former_group.handle(enclosed, respond)
        elif broker != self.coordinator:
            respond(Refused(ErrorCode.NOT_COORDINATOR))
        elif self._now_ms() < self._loading_until_ms:
            respond(Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            self.group.handle(enclosed, respond)

    def named_by(self, broker: str) -> str | None:
        """Return whom a broker names as the coordinator."""
        return self.former if broker in self._believers else self.coordinator

    @property
    def rebalances(self) -> int:
        """How many there were."""
        return self.rebalances_before + self.group.rebalances

    def tick(self) -> None:
        """Let time-outs of the group take effect."""
        if self.coordinator not in (None, *self.frozen) and self._now_ms() >= self._loading_until_ms:
            self.group.tick()
        if self._former_group is not None and self.former not in self.frozen:
            if self._now_ms() >= self._former_until_ms:
                self.end_former()
            else:
                self._former_group.tick()

    # ---- faults ------------------------------------------------------------------------------------------------------

    def move(self, *, is_known: bool = True) -> None:
        """Let another broker coordinate, which reads the group.

        The former one answers what waits, unless it stands still; where it does not know, it coordinates on for a while.
        """
        before, after = self.group, self.group.reload()
        self.end_former()
        if self.coordinator not in self.frozen and is_known:
            before.let_go()
        if not is_known and self.coordinator is not None:
            self.former, self._former_group, before.is_former = self.coordinator, before, True
            self._former_until_ms = self._now_ms() + self._random.choice((1_000, 4_000, 15_000))
            others = {each for each in BROKERS if self._random.random() < 0.5}
            self._believers = {self.coordinator} | others
            self.formers += 1
        self.coordinator = self._random.choice([each for each in BROKERS if each != self.coordinator])
        self._loading_until_ms = self._now_ms() + self._random.choice((0, 50, 500))
        self._believers.discard(self.coordinator)
        self.group = after

    def end_former(self) -> None:
        """Let who coordinated before learn that it is over."""
        if self._former_group is not None and self.former not in self.frozen:
            self._former_group.let_go()
        self.former, self._former_group = None, None
        self._believers.clear()

    def lose(self) -> None:
        """Lose the group: the broker that coordinates knows none."""
        self.move()
        self.rebalances_before += self.group.rebalances
        self.group = self._make_group()

    def forget(self) -> bool:
        """Forget a group that has no members; its generations begin again."""
        if self.group.state != EMPTY or not self.group.generation or self.group.pending:
            return False
        self.rebalances_before += self.group.rebalances
        self.group = self._make_group()
        return True
