"""An event loop and its clock for tests of polling: turns, answers and requests take the time that a test says."""

from collections.abc import Callable

from holdfast.kafka.brokers.busy_poll import BusyPolling
from holdfast.metrics.instruments import Counter

WINDOW_US = 1_000
TURN_S = 0.000_02


class Loop:
    """Stands in for the event loop and its clock; a turn takes 20 µs."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.turn_s = TURN_S  #: of one in which it has nothing to do
        self.turns = 0
        self.polled_ms = Counter()
        self.due: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self.polling = self.make_polling(WINDOW_US)

    def make_polling(self, window_us: int) -> BusyPolling:
        return BusyPolling(window_us, self.polled_ms, lambda: self.now_s)

    def call_soon(self, call: Callable[..., None], *arguments: object) -> None:
        self.due.append((call, arguments))

    def work(self, took_s: float) -> None:
        """Take a turn in which it has other work to do."""
        self.now_s += took_s

    def take_turns(self, for_s: float) -> int:
        """Take turns for a time or until the loop would sleep, which it then does for the rest; returns how many."""
        until_s, turns = self.now_s + for_s, 0
        while self.due and self.now_s < until_s:
            due, self.due = self.due, []
            for call, arguments in due:
                call(*arguments)
            self.now_s += self.turn_s
            turns += 1
        self.turns += turns
        self.now_s = max(self.now_s, until_s)
        return turns

    def send(self) -> None:
        self.polling.on_sent(self)  # type: ignore[arg-type]

    def answer(self) -> None:
        self.polling.on_answered(self)  # type: ignore[arg-type]

    def exchange(self, answered_s: float, followed_s: float, work_s: float = 0.0) -> tuple[bool, bool]:
        """Send a request that is answered after a time, and wait for the next one; returns whether it is awake at either end."""
        self.send()
        self.take_turns(answered_s)
        is_awake = bool(self.due)
        self.answer()
        self.work(work_s)
        self.take_turns(followed_s)
        return is_awake, bool(self.due)
