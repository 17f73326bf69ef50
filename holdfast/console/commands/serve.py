"""`holdfast serve`: one node in this process, from its settings to its exit code."""

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog
import uvloop

from holdfast.console.outcomes import Exit, Failure
from holdfast.daemon.node import Node
from holdfast.daemon.node_exit import NodeExit
from holdfast.daemon.settings.file_env_flags import ConfigError, load_settings, to_flags
from holdfast.daemon.settings.logging import configure_logging, set_level
from holdfast.daemon.settings.models import Settings

_log = structlog.get_logger(__name__)

#: What can be changed while a node runs.
_RELOADED: Final = frozenset({"log_level"})

#: When Python looks for garbage in cycles, which a node hardly makes: after so many new containers, in every fifth look among
#: those that survived one, and hardly ever in the whole state. With its usual 700 it would look several times in each turn of
#: the loop and take a seventh of the time of a write (benchmarks/README.md, "Hot path").
_COLLECTOR_THRESHOLDS: Final = (50_000, 5, 400)


def serve_until_stopped(config: Path | None, flags: Mapping[str, object]) -> NodeExit:
    """Run a node until a signal stops it, and return how it ended.

    Raises:
        Failure: a setting is wrong.
    """
    try:
        loaded = load_settings(config, os.environ, flags)
    except ConfigError as error:
        raise Failure(str(error), Exit.WRONG_USAGE) from None
    configure_logging(loaded.settings.logging, may_be_coloured=not os.environ.get("NO_COLOR"))
    for warning in loaded.warnings:
        _log.warning("setting_doubted", what=warning)
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)
    return uvloop.run(_serve(loaded.settings, lambda: load_settings(config, os.environ, flags).settings))


def reload(current: Settings, load: Callable[[], Settings]) -> Settings:
    """Read the settings again, apply those that can be changed while a node runs, and log in one line which they are.

    Returns:
        The settings that hold now: the current ones, but for `log_level`.
    """
    try:
        found = load()
    except ConfigError as error:
        _log.error("settings_reload_failed", why=str(error))
        return current
    before, after = to_flags(current), to_flags(found)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    set_level(found.logging.log_level)
    # A warning, so that it is written whatever the level is.
    _log.warning(
        "settings_reloaded",
        reloaded=[f"{name}={after[name]}" for name in changed if name in _RELOADED],
        need_a_restart=[name for name in changed if name not in _RELOADED],
    )
    logging_settings = current.logging.model_copy(update={"log_level": found.logging.log_level})
    return current.model_copy(update={"logging": logging_settings})


async def _serve(settings: Settings, load: Callable[[], Settings]) -> NodeExit:
    node = Node(settings)
    loop = asyncio.get_running_loop()

    def reload_settings() -> None:
        node.settings = reload(node.settings, load)

    def stop() -> None:
        # The second signal finds the default action restored and ends the process at once.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        node.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, reload_settings)
    return await node.run()
