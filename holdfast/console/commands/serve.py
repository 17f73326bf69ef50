"""`holdfast serve`: one node in this process, from its settings to its exit code."""

import asyncio
import gc
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog
import uvloop

from holdfast.console.outcomes import Exit, Failure
from holdfast.daemon.config_topic.node_settings import Load
from holdfast.daemon.node import Node
from holdfast.daemon.node_exit import NodeExit
from holdfast.daemon.settings.file_env_flags import ConfigError, Loaded, load_settings
from holdfast.daemon.settings.logging import configure_logging
from holdfast.daemon.settings.models import Settings

_log = structlog.get_logger(__name__)

#: When Python looks for garbage in cycles, which a node hardly makes: after so many new containers, in every fifth look among
#: those that survived one, and hardly ever in the whole state. With its usual 700 it would look several times in each turn of
#: the loop and take a seventh of the time of a write (benchmarks/README.md, "Hot path").
_COLLECTOR_THRESHOLDS: Final = (50_000, 5, 400)


def serve_until_stopped(config: Path | None, flags: Mapping[str, object]) -> NodeExit:
    """Run a node until a signal stops it, and return how it ended.

    Raises:
        Failure: a setting is wrong.
    """

    def load(cluster: Mapping[str, str]) -> Loaded:
        return load_settings(config, os.environ, flags, cluster)

    try:
        loaded = load({})
    except ConfigError as error:
        raise Failure(str(error), Exit.WRONG_USAGE) from None
    configure_logging(loaded.settings.logging, may_be_coloured=not os.environ.get("NO_COLOR"))
    for warning in loaded.warnings:
        _log.warning("setting_doubted", what=warning)
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)
    return uvloop.run(_serve(loaded.settings, load))


async def _serve(settings: Settings, load: Load) -> NodeExit:
    node = Node(settings, load)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        # The second signal finds the default action restored and ends the process at once.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        node.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, node.node_settings.reload)
    return await node.run()
