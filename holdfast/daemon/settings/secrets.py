"""What must stand in no log line and in no bundle, wherever it comes from: the values of secret settings, and passwords in URLs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.daemon.settings.declarations import REDACTED, URL_PASSWORD, is_secret
from holdfast.daemon.settings.file_env_flags import to_flags
from holdfast.daemon.settings.models import Settings

#: Shorter values are words of everyday text, which no log line could do without.
_CHARACTERS_MIN: Final = 4
_WORDS: Final = frozenset({"true", "false", "none", "required"})
_JSON_DEPTH: Final = 2


def secrets_of(settings: Settings) -> list[str]:
    """Return the values that must stand nowhere, the longest first."""
    values = {name: str(value) for name, value in to_flags(settings).items() if value}
    found = {value for name, value in values.items() if is_secret(name)}
    found |= {user.partition(":")[2] for value in values.values() for user in URL_PASSWORD.findall(value)}
    return sorted((each for each in found - _WORDS if len(each) >= _CHARACTERS_MIN), key=len, reverse=True)


def hide(content: Any, secrets: Iterable[str]) -> Any:  # noqa: ANN401
    """Return data without secrets, in any text that it holds."""
    return _hide(content, [form for secret in secrets for form in _forms(secret)])


def _hide(content: Any, forms: Iterable[str]) -> Any:  # noqa: ANN401
    if isinstance(content, Mapping):
        return {_hide(name, forms): _hide(value, forms) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_hide(value, forms) for value in content]
    if isinstance(content, str):
        for form in forms:
            content = content.replace(form, REDACTED)
    return content


def _forms(secret: str) -> list[str]:
    """Return a text as it is, as JSON writes it, and as JSON writes that: a log line is JSON, and may hold some."""
    forms = {secret: None}
    for _ in range(_JSON_DEPTH):
        forms |= {json.dumps(each, ensure_ascii=is_ascii)[1:-1]: None for each in forms for is_ascii in (False, True)}
    return sorted(forms, key=len, reverse=True)
