"""Log partitions that wait for their turn to load: only so many load at a time."""

from collections.abc import Callable, Iterable


class LoadQueue:
    """The log partitions that are to be loaded, in order of arrival."""

    def __init__(self, loads_max: int, count_loading: Callable[[], int], load: Callable[[int], None]) -> None:
        """Begin empty.

        Args:
            loads_max: log partitions that may load at the same time.
            count_loading: returns how many do.
            load: begins to load one.
        """
        self._loads_max = loads_max
        self._count_loading = count_loading
        self._load = load
        #: In order of arrival; only the keys count.
        self._waiting: dict[int, None] = {}

    def add(self, partitions: Iterable[int]) -> None:
        """Let log partitions load when it is their turn, maybe at once."""
        self._waiting.update(dict.fromkeys(partitions))
        self.load_next()

    def remove(self, partition: int) -> None:
        """Forget a log partition whose turn has not come."""
        self._waiting.pop(partition, None)

    def load_next(self) -> None:
        """Begin as many loads as there is room for."""
        while self._waiting and self._count_loading() < self._loads_max:
            partition = next(iter(self._waiting))
            del self._waiting[partition]
            self._load(partition)

    def waiting(self) -> set[int]:
        """Return the log partitions whose turn has not come."""
        return set(self._waiting)
