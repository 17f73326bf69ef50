"""Settings read from all their sources again while a node runs: what is taken over, and what is said of it."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import structlog

from holdfast.daemon.settings.cluster_wide import TAKEN_OVER_WHILE_RUNNING
from holdfast.daemon.settings.declarations import redact
from holdfast.daemon.settings.file_env_flags import ConfigError, Loaded, to_flags
from holdfast.daemon.settings.logging import set_level
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.settings.secrets import secrets_of
from holdfast.hidden_texts import HIDDEN_TEXTS
from holdfast.kafka.connection_options import LiveProperties
from holdfast.kafka.errors import PropertyRefused
from holdfast.kafka.security import RENEWABLE, files_of

_log = structlog.get_logger(__name__)

_KAFKA: Final = "kafka."


def _log_findings(loaded: Loaded) -> None:
    """Write a line for each value that loses against another source, and for each of the config topic's that is refused."""
    for name, origin, by in loaded.overruled:
        _log.info("setting_overruled", setting=name, given=origin, overruled=by)
    for name, why in loaded.refused.items():
        _log.warning("cluster_setting_refused", setting=name, why=why)


class Reloaded(NamedTuple):
    """What reading the settings again has come to."""

    #: Those that hold now; a running node's are the former ones, but for `log_level` and for how Kafka is logged in to.
    settings: Settings
    #: How Kafka is to be logged in to by what was read; if that was refused, `settings` has the former properties.
    kafka_properties: Mapping[str, str]
    #: Whether that can be used; None: it is in use already, and was not looked at.
    is_renewed: bool | None


def take(load: Callable[[], Loaded], kafka: LiveProperties) -> Reloaded | None:
    """Read the settings before anything but the connections to Kafka is made of them, and log what loses or is refused.

    Returns:
        None where a source is wrong, and nothing was changed.
    """
    try:
        loaded = load()
    except ConfigError as error:
        _log.error("settings_reload_failed", why=str(error))
        return None
    found = loaded.settings
    HIDDEN_TEXTS.add(secrets_of(found))
    set_level(found.logging.log_level)
    wanted, is_renewed = _renew_changed(kafka, found)
    _log_findings(loaded)
    return Reloaded(_with_kafka(found, kafka), wanted, is_renewed)


def reload(current: Settings, load: Callable[[], Loaded], kafka: LiveProperties) -> Reloaded | None:
    """Read the settings again, apply those that can be changed while a node runs, and log in one line what became of each.

    Returns:
        None where a source is wrong, and nothing was changed.
    """
    try:
        loaded = load()
    except ConfigError as error:
        _log.error("settings_reload_failed", why=str(error))
        return None
    found = loaded.settings
    # Before any line is written by what they make.
    HIDDEN_TEXTS.add(secrets_of(found))
    before, after = to_flags(current), to_flags(found)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    set_level(found.logging.log_level)
    wanted, is_renewed = _renew_changed(kafka, found)
    is_refused = is_renewed is False
    renewable = {name for name in changed if _is_renewable(name)}
    # A warning, so that it is written whatever the level is.
    _log.warning(
        "settings_reloaded",
        reloaded=[
            _shown(name, after)
            for name in changed
            if name in TAKEN_OVER_WHILE_RUNNING or (name in renewable and not is_refused)
        ],
        # The line before says why; they are refused together, for they are used together.
        refused=sorted(renewable) if is_refused else [],
        need_a_restart=[name for name in changed if name not in TAKEN_OVER_WHILE_RUNNING | renewable],
    )
    _log_findings(loaded)
    logging_settings = current.logging.model_copy(update={"log_level": found.logging.log_level})
    settings = _with_kafka(current.model_copy(update={"logging": logging_settings}), kafka)
    return Reloaded(settings, wanted, is_renewed)


def renew(kafka: LiveProperties, properties: Mapping[str, str]) -> bool:
    """Have new connections to Kafka log in by these properties, and by what their files hold now; returns whether they can be used."""
    try:
        kafka.renew(properties)
    except PropertyRefused as error:
        _log.error("kafka_credentials_refused", why=str(error))
        return False
    _log.info("kafka_credentials_loaded", files=[str(each) for each in files_of(properties)])
    return True


def _renew_changed(kafka: LiveProperties, found: Settings) -> tuple[Mapping[str, str], bool | None]:
    """Have Kafka logged in to as was found, if that differs from how it is now; see `Reloaded`."""
    wanted = _renewed(kafka.current, found.kafka.properties)
    return wanted, None if wanted == kafka.current else renew(kafka, wanted)


def _with_kafka(settings: Settings, kafka: LiveProperties) -> Settings:
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"properties": kafka.current})})


def _renewed(current: Mapping[str, str], found: Mapping[str, str]) -> Mapping[str, str]:
    kept = {name: value for name, value in current.items() if name not in RENEWABLE}
    return kept | {name: value for name, value in found.items() if name in RENEWABLE}


def _is_renewable(name: str) -> bool:
    return name.startswith(_KAFKA) and name.removeprefix(_KAFKA) in RENEWABLE


def _shown(name: str, values: Mapping[str, str]) -> str:
    return f"{name}={redact(name, values.get(name, ''))}"
