"""The config topic as a node uses it: a log of its own, read before the node takes its settings, and followed from then on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from holdfast.clock import now_ms
from holdfast.daemon.components import quiet_log_config
from holdfast.daemon.config_topic.follower import ConfigFollower
from holdfast.daemon.config_topic.values import VALUES_BYTES_MAX, ClusterValue
from holdfast.daemon.settings.models import Settings
from holdfast.kafka.connection_options import LiveProperties
from holdfast.kafka.errors import ConnectionFailed
from holdfast.metrics.registry import Registry
from holdfast.runtime.kafka_log.log import KafkaLog
from holdfast.runtime.metrics import RuntimeMetrics

_log = structlog.get_logger(__name__)

#: Pause before the config topic is looked for again, where there is none or it cannot be read: it is rarely made, and not urgent.
_RETRY_PAUSE_MS: Final = 2_000


class ConfigTopic:
    """The follower with its log, from `start` to `stop`."""

    def __init__(self, settings: Settings, kafka: LiveProperties, values_changed: Callable[[], None]) -> None:
        """Prepare; `start` connects. Needs a running event loop.

        Args:
            settings: of the node, without those of the config topic.
            kafka: how it is reached.
            values_changed: called when other values hold than before.

        Raises:
            PropertyRefused: a property of the client has no counterpart in connections of our own.
        """
        self._settings = settings.config_topic
        log_config = quiet_log_config(settings, settings.config_topic_name, kafka.connection_options())
        # Only the log of the state topic has metrics.
        self._log = KafkaLog(log_config, now_ms, RuntimeMetrics(Registry()))
        self._follower = ConfigFollower(self._log, self, VALUES_BYTES_MAX)
        self.values_changed = values_changed
        self._loop = asyncio.get_running_loop()
        self._is_connected = False
        #: Connects, or begins to read again, after a pause.
        self._retry: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None
        #: Set, and replaced by another one, with all progress.
        self._progress = asyncio.Event()

    @property
    def offset(self) -> int:
        """Up to which it was read, inclusive; -1: nothing."""
        return self._follower.values.offset

    @property
    def values(self) -> Mapping[str, ClusterValue]:
        """The value of each setting that is in it, by name."""
        return self._follower.values.values

    @property
    def is_current(self) -> bool:
        """Whether what was begun last has reached the end, or found that there is no topic."""
        return 0 < self._follower.begun == self._follower.ended

    async def start(self) -> bool:
        """Read it to its end, for `config.read.timeout.ms` at most; returns whether that was reached, or there is no topic."""
        self._begin()
        return await self._until(lambda: self._follower.ended > 0, self._settings.read_timeout_ms)

    async def refresh(self, offset: int, timeout_ms: int) -> int:
        """Read to its end, and at least to this offset, for as long as it may take; returns up to which it was read."""
        number = self._follower.begun + 1
        self._begin()
        await self._until(lambda: self._follower.ended >= number and self.offset >= offset, timeout_ms)
        return self.offset

    async def stop(self, timeout_ms: int) -> bool:
        """Read no more; returns whether all of it ended in time."""
        if self._retry is not None:
            self._retry.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        return await self._log.close(timeout_ms / 1_000)

    # ---- for the follower (FollowerHost) ---------------------------------------------------------------------------

    def progressed(self) -> None:
        """See `FollowerHost.progressed`."""
        self._progress.set()
        self._progress = asyncio.Event()

    def read_again_later(self) -> None:
        """See `FollowerHost.read_again_later`."""
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._loop.call_later(_RETRY_PAUSE_MS / 1_000, self._begin)

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        """See `FollowerHost.note`."""
        getattr(_log, level)(event, **fields)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._is_connected:
            self._follower.begin()
        elif self._connecting is None or self._connecting.done():
            self._connecting = self._loop.create_task(self._connect(), name="holdfast-config-topic")

    async def _connect(self) -> None:
        try:
            await self._log.start(self._follower)
        except ConnectionFailed as failure:
            self._follower.failed(str(failure))
        else:
            self._is_connected = True
            if self._log.has_topic():
                self._follower.begin()
            else:
                self._follower.begin_without_topic()

    async def _until(self, condition: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait for a condition that progress brings about; returns whether it holds."""
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                while not condition():
                    await self._progress.wait()
        except TimeoutError:
            return condition()
        return True
