"""Settings read from all their sources again while a node runs: what is taken over, and what is said of it."""

from collections.abc import Callable, Mapping

import structlog

from holdfast.daemon.settings.cluster_wide import TAKEN_OVER_WHILE_RUNNING
from holdfast.daemon.settings.declarations import redact
from holdfast.daemon.settings.file_env_flags import ConfigError, Loaded, to_flags
from holdfast.daemon.settings.logging import set_level
from holdfast.daemon.settings.models import Settings
from holdfast.kafka.connection import LiveProperties
from holdfast.kafka.errors import PropertyRefused
from holdfast.kafka.security import RENEWABLE, files_of

_log = structlog.get_logger(__name__)


def take(current: Settings, load: Callable[[], Loaded]) -> Settings:
    """Read the settings before anything is made of them, and log what loses or is refused.

    Returns:
        What was read; the current ones where a source is wrong.
    """
    try:
        loaded = load()
    except ConfigError as error:
        _log.error("settings_reload_failed", why=str(error))
        return current
    set_level(loaded.settings.logging.log_level)
    _log_findings(loaded)
    return loaded.settings


def _log_findings(loaded: Loaded) -> None:
    """Write a line for each value that loses against another source, and for each of the config topic's that is refused."""
    for name, origin, by in loaded.overruled:
        _log.info("setting_overruled", setting=name, given=origin, overruled=by)
    for name, why in loaded.refused.items():
        _log.warning("cluster_setting_refused", setting=name, why=why)


def reload(current: Settings, load: Callable[[], Loaded], kafka: LiveProperties) -> Settings:
    """Read the settings again, apply those that can be changed while a node runs, and log in one line which they are.

    Returns:
        The settings that hold now: the current ones, but for `log_level` and for how `kafka` logs in.
    """
    try:
        loaded = load()
    except ConfigError as error:
        _log.error("settings_reload_failed", why=str(error))
        return current
    found = loaded.settings
    before, after = to_flags(current), to_flags(found)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    set_level(found.logging.log_level)
    properties = _renewed(current.kafka.properties, found.kafka.properties)
    if properties != current.kafka.properties and not renew(kafka, properties):
        properties = current.kafka.properties
    # A warning, so that it is written whatever the level is.
    _log.warning(
        "settings_reloaded",
        reloaded=[_shown(name, after) for name in changed if _is_taken_over(name)],
        need_a_restart=[name for name in changed if not _is_taken_over(name)],
    )
    _log_findings(loaded)
    logging_settings = current.logging.model_copy(update={"log_level": found.logging.log_level})
    kafka_settings = current.kafka.model_copy(update={"properties": properties})
    return current.model_copy(update={"logging": logging_settings, "kafka": kafka_settings})


def renew(kafka: LiveProperties, properties: Mapping[str, str]) -> bool:
    """Have new connections to Kafka log in by these properties, and by what their files hold now; returns whether they can be used."""
    try:
        kafka.renew(properties)
    except PropertyRefused as error:
        _log.error("kafka_credentials_refused", why=str(error))
        return False
    _log.info("kafka_credentials_loaded", files=[str(each) for each in files_of(properties)])
    return True


def _renewed(current: Mapping[str, str], found: Mapping[str, str]) -> Mapping[str, str]:
    kept = {name: value for name, value in current.items() if name not in RENEWABLE}
    return kept | {name: value for name, value in found.items() if name in RENEWABLE}


def _is_taken_over(name: str) -> bool:
    return name in TAKEN_OVER_WHILE_RUNNING or name.removeprefix("kafka.") in RENEWABLE


def _shown(name: str, values: Mapping[str, str]) -> str:
    return f"{name}={redact(name, values.get(name, ''))}"
