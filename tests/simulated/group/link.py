"""The way of a member to its group coordinator, as `kafka_group.group_link` goes it: two connections, one request at a time on each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.membership import MembershipSettings
from holdfast.membership.requests import Answer, JoinGroup, Refused, Request, SyncGroup
from tests.simulated.group.brokers import BROKERS
from tests.simulated.group.group import Enclosed

if TYPE_CHECKING:
    from tests.simulated.group.world import GroupWorld

_LOST = Refused(ErrorCode.NETWORK_EXCEPTION, "the connection was lost")


class _Channel:
    """One connection."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.waiting: deque[Request] = deque()
        self.request: Request | None = None
        self.is_sent = False  #: and not still looking for the coordinator
        self.number = 0  #: of the request in flight, so that a late answer to an earlier one is known


class Link:
    """Requests of one process to the coordinator of its group."""

    def __init__(
        self,
        world: GroupWorld,
        name: str,
        settings: MembershipSettings,
        run: Callable[[Callable[[], None]], None],
        answered: Callable[[Request, Answer], None],
    ) -> None:
        self._world = world
        self._name = name
        self._settings = settings
        self._run = run
        self._answered = answered
        self._short_ms = min(settings.request_timeout_ms, settings.session_timeout_ms // 3)
        self._held = _Channel(settings.rebalance_timeout_ms + settings.request_timeout_ms)
        self._prompt = _Channel(self._short_ms)
        self._broker: str | None = None
        #: A JoinGroup may come late, beside another that was sent after it.
        self.has_given_up_join = False

    def exchange(self, request: Request) -> None:
        """Send a request when those before it on its connection are answered."""
        channel = self._held if isinstance(request, JoinGroup | SyncGroup) else self._prompt
        channel.waiting.append(request)
        self._send_next(channel)

    def forget(self) -> None:
        """Look the coordinator up again; what is in flight fails."""
        self._broker = None
        for channel in (self._held, self._prompt):
            if channel.request is not None:
                number = channel.number
                self._world.network.after(0, partial(self._end, channel, number, _LOST))

    def _send_next(self, channel: _Channel) -> None:
        if channel.request is not None or not channel.waiting:
            return
        channel.request = channel.waiting.popleft()
        channel.number += 1
        channel.is_sent = False
        number, network = channel.number, self._world.network
        if self._broker is not None:
            self._send(channel, number, self._broker)
            return
        asked = self._world.random.choice(BROKERS)
        brokers = self._world.brokers

        def look_up() -> None:
            if asked not in brokers.frozen:
                network.send(asked, self._name, partial(self._found, channel, number, brokers.named_by(asked)))

        network.send(self._name, asked, look_up)

        def give_up() -> None:
            if not channel.is_sent:
                self._end(channel, number, _LOST)

        network.after(self._short_ms, give_up)

    def _found(self, channel: _Channel, number: int, broker: str | None) -> None:
        def go_on() -> None:
            if channel.number != number or channel.request is None or channel.is_sent:
                return
            if broker is None:
                self._end_now(channel, number, Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            else:
                self._broker = broker
                self._send(channel, number, broker)

        self._run(go_on)

    def _send(self, channel: _Channel, number: int, broker: str) -> None:
        network, brokers, request = self._world.network, self._world.brokers, channel.request
        assert request is not None
        channel.is_sent = True
        enclosed = Enclosed(request, self._settings)

        def respond(answer: Answer) -> None:
            network.send(broker, self._name, lambda: self._end(channel, number, answer))

        def arrive() -> None:
            if isinstance(request, JoinGroup) and self._world.members[self._name].link is not self:
                self._world.late_joins.add(self._name)
            brokers.handle(broker, enclosed, respond)

        network.send(self._name, broker, arrive)
        network.after(channel.timeout_ms, lambda: self._end(channel, number, _LOST))

    def _end(self, channel: _Channel, number: int, answer: Answer) -> None:
        if channel.number == number and channel.request is not None:
            self._run(lambda: self._end_now(channel, number, answer))

    def _end_now(self, channel: _Channel, number: int, answer: Answer) -> None:
        if channel.number != number or channel.request is None:
            return
        request, channel.request = channel.request, None
        self.has_given_up_join |= answer is _LOST and isinstance(request, JoinGroup)
        self._answered(request, answer)
        self._send_next(channel)
