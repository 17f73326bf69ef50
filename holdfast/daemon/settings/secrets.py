"""The secrets of settings: what must stand in no log line and in no bundle (`hidden_texts`)."""

from __future__ import annotations

from typing import Final

from holdfast.daemon.settings.declarations import is_secret
from holdfast.daemon.settings.file_env_flags import to_flags
from holdfast.daemon.settings.models import Settings
from holdfast.hidden_texts import URL_PASSWORD

_WORDS: Final = frozenset({"true", "false", "none", "required"})


def secrets_of(settings: Settings) -> list[str]:
    """Return the values that must stand nowhere, the longest first."""
    values = {name: str(value) for name, value in to_flags(settings).items() if value}
    found = {value for name, value in values.items() if is_secret(name)}
    found |= {user.partition(":")[2] for value in values.values() for user in URL_PASSWORD.findall(value)}
    return sorted(found - _WORDS - {""}, key=len, reverse=True)
