"""The settings of a node, those of the config topic among them: taken before it starts, and read again while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import structlog

from holdfast.daemon.config_topic.topic import ConfigTopic
from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.settings.file_env_flags import CONFIG_TOPIC, ConfigError, Loaded, describe
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.settings.reloading import Reloaded, reload, renew, take
from holdfast.kafka.connection_options import LiveProperties
from holdfast.kafka.security import files_of

_log = structlog.get_logger(__name__)

#: Names the files of how Kafka is logged in to.
_FILES: Final = "kafka.ssl"

#: Reads all sources and merges them with what the config topic holds, by name of the setting.
Load: TypeAlias = Callable[[Mapping[str, str]], Loaded]


class NodeSettings:
    """The settings of one node, which follow their sources as far as a running node can."""

    def __init__(self, current: Settings, load: Load | None = None) -> None:
        """Hold the settings that the node has without the config topic.

        Args:
            current: these settings.
            load: reads all sources, raises ConfigError where one is wrong; None: there are no others, and no config topic.
        """
        self.current = current
        #: How Kafka is reached.
        self.kafka = LiveProperties(current.kafka.properties)
        #: How it is to be reached, by what was read last; differs from `kafka` while that is refused.
        self._wanted = current.kafka.properties
        self._load = load or (lambda _: Loaded(current))
        self._is_alone = load is None
        self._topic: ConfigTopic | None = None
        #: Of these properties.
        self._files: FileWatch | None = None
        #: The node has taken what the config topic held when it started.
        self._is_taken = False

    @asynccontextmanager
    async def followed(
        self,
        wait: Callable[[Coroutine[Any, Any, bool]], Awaitable[bool]],
        stop: Callable[[str, Callable[[], Awaitable[object]], int], Awaitable[None]],
    ) -> AsyncIterator[None]:
        """Read the config topic, take its settings, and go on following it.

        Args:
            wait: waits for the end of the topic, and raises where the node is to stop before.
            stop: does a step of the shutdown: its name, what it does, and how many ms it may take.
        """
        if self._is_alone:
            yield
            return
        topic = self._topic = ConfigTopic(self.current, self.kafka, self._topic_changed)
        step_ms = self.current.shutdown.shutdown_step_timeout_ms
        try:
            if not await wait(topic.start()):
                read_timeout_ms = self.current.config_topic.read_timeout_ms
                _log.warning("config_topic_late", read_timeout_ms=read_timeout_ms)
            if (taken := take(self._load_all, self.kafka)) is not None:
                self._hold(taken)
            self._is_taken = True
            yield
        finally:
            await stop("config topic", lambda: topic.stop(step_ms), step_ms)

    @property
    def offset(self) -> int:
        """Up to which the config topic was read, inclusive; -1: nothing."""
        return -1 if self._topic is None else self._topic.offset

    @property
    def is_current(self) -> bool:
        """Whether the last refresh has reached the end of the config topic, or found that there is none."""
        return self._topic is None or self._topic.is_current

    async def refresh(self, offset: int, timeout_ms: int) -> int:
        """Read the config topic to its end, and at least to this offset; returns up to which it was read."""
        return -1 if self._topic is None else await self._topic.refresh(offset, timeout_ms)

    def reload(self) -> Collection[str]:
        """Read all sources again, and take over what a running node can; returns the settings whose files were read for it."""
        reloaded = reload(self.current, self._load_all, self.kafka)
        return () if reloaded is None else self._hold(reloaded)

    def follow_files(self, files: FileWatch) -> None:
        """Have new connections to Kafka go by the certificates that the properties name as they are now, when `files` says so.

        These are the properties of the last reload, whether it brought files, or they were refused and are there since.
        """
        self._files = files
        files.follow(_FILES, lambda: files_of(self._wanted), self._renew)

    def describe(self) -> dict[str, Any]:
        """Return up to where the config topic was read, and each value in it with what this node makes of it."""
        standing = self._standings()
        values = {} if self._topic is None else self._topic.values
        rows = [
            {"name": name, "value": text, "offset": offset, "on_node": standing(name)}
            for name, (text, offset) in sorted(values.items())
        ]
        return {"offset": self.offset, "settings": rows}

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _hold(self, reloaded: Reloaded) -> Collection[str]:
        """Go by settings that were read; returns what `reload` does."""
        former = self._wanted
        self.current, self._wanted, is_renewed = reloaded
        if is_renewed is None and former != self.kafka.current:  # it was refused, and what is in use is wanted again
            is_renewed = self._renew()
        if is_renewed is None:
            return ()
        if self._files is not None:
            self._files.note(_FILES, is_taken=is_renewed)
        return (_FILES,)

    def _renew(self) -> bool:
        if self._wanted == self.kafka.current and not files_of(self._wanted):
            return True  # nothing can have changed
        is_taken = renew(self.kafka, self._wanted)
        if is_taken:
            kafka = self.current.kafka.model_copy(update={"properties": self._wanted})
            self.current = self.current.model_copy(update={"kafka": kafka})
        return is_taken

    def _standings(self) -> Callable[[str], str]:
        """Return what says of a value of the config topic whether the node goes by it."""
        try:
            loaded = self._load_all()
        except ConfigError as error:
            problem = f"the node's own settings are wrong: {error}"
            return lambda _: problem
        running, found = describe(self.current), describe(loaded.settings)
        overruled = {name: by for name, origin, by in loaded.overruled if origin == CONFIG_TOPIC}

        def standing(name: str) -> str:
            if name in loaded.refused:
                return f"refused: {loaded.refused[name]}"
            if name in overruled:
                return f"overruled {overruled[name]}"
            return "in force" if running.get(name) == found.get(name) else "needs a restart"

        return standing

    def _topic_changed(self) -> None:
        if self._is_taken:
            self.reload()

    def _load_all(self) -> Loaded:
        values = {} if self._topic is None else self._topic.values
        return self._load({name: value.text for name, value in values.items()})
