"""One seed is one life of a gateway: faults first, then a calm in which every record must find its end, and nothing may be left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from structlog.testing import capture_logs

from tests.simulated.checks.invariants import FOUND, Invariant, violate
from tests.simulated.gateway.faults import FAULTS
from tests.simulated.gateway.states import WRITE_TIMEOUT_S
from tests.simulated.gateway.world import GatewayWorld

#: Lines that its faults bring about.
_EXPECTED_LINES = ("records_not_read", "share_partition_held", "share_partition_not_served")
_PAUSES_S = (0.001, 0.05, 0.05, 0.5, 2.0)
#: In which everything under way ends: locks, Writes, fetches.
_SETTLING_S = 35.0
#: In which good members take all that there is.
_CALM_S = 600.0


class GatewayLife:
    """A gateway and the choices made in its life."""

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None) -> None:
        FOUND.clear()
        world = self.world = GatewayWorld(seed, trace)
        random = self._random = world.random_of("life")
        share = random.choice((0.0, 0.3, 0.6, 1.0))
        self._faults = [kind for kind in FAULTS if random.random() < share]
        self._steps = random.randint(20, 120)

    def run(self) -> Counter[str]:
        """Live; returns what happened how often.

        Raises:
            Violation: an invariant did not hold.
        """
        try:
            with capture_logs() as lines:
                self._live()
        finally:
            for node in self.world.alive:
                self.world.timeline.end(node.loop)
                node.loop.dispose()
        for line in lines:
            self.world.count(f"note: {line['event']}")
            if "exc_info" in line or line["event"] not in _EXPECTED_LINES:
                violate(Invariant.BUGS_STAY_AT_HOME, str(line))
        return self.world.counts

    def _live(self) -> None:
        if not self._faults:
            self.world.count("life without faults")
        for _ in range(self._steps):
            self._step()
        self._calm_down()
        self._leave()

    def _step(self) -> None:
        world, random = self.world, self._random
        if random.random() < 0.5:
            random.choice(world.logs).produce()
        if self._faults and random.random() < 0.25:
            kind = random.choice(self._faults)
            if FAULTS[kind](world, random.choice(world.alive)):
                world.count(f"fault: {kind}")
                world.say(lambda: f"fault: {kind}")
        world.timeline.run(random.choice(_PAUSES_S))

    def _calm_down(self) -> None:
        world = self.world
        world.say(lambda: "calm")
        world.is_calm = True
        for node in world.alive:
            node.thaw()
        world.tell_all()
        for log in world.logs:
            log.end_transactions()
            while log.tainted and log.end <= max(log.tainted):
                log.produce()
            log.end_transactions()
        for member in world.members:
            member.become_good()
        world.timeline.run(_SETTLING_S)
        groups = {member.group_id for member in world.members}
        for member in world.members:
            member.wait_again()

        def is_done() -> bool:
            have_nothing = {member.group_id for member in world.members if member.has_nothing}
            return have_nothing == groups

        if not world.timeline.run_until(is_done, _CALM_S):
            violate(Invariant.RECORDS_ARE_GIVEN, "members still get records, or errors")
        world.ledger.check_end()

    def _leave(self) -> None:
        """End all sessions."""
        world = self.world
        for member in world.members:
            member.stop()
        world.timeline.run(1)
        # Among them those that were forgotten: a request that was late on one of them took the session back there.
        for connection in world.connections:
            connection.close()
        world.timeline.run(3 * WRITE_TIMEOUT_S)
        for request in world.requests:
            if not request.answers and not request.connection.node.is_dead:
                violate(Invariant.ALWAYS_ANSWERED, request.what)
        for node in world.alive:
            node.check_at_rest()


def run_gateway_life(seed: int, trace: Callable[[str], None] | None = None) -> Counter[str]:
    """Live the life of one seed; returns what happened how often.

    Raises:
        Violation: an invariant did not hold.
    """
    return GatewayLife(seed, trace).run()
