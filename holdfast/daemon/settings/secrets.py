"""What must stand in no log line and in no bundle, wherever it comes from: the values of secret settings, and passwords in URLs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdfast.daemon.settings.declarations import REDACTED, URL_PASSWORD, is_secret
from holdfast.daemon.settings.file_env_flags import to_flags
from holdfast.daemon.settings.models import Settings

#: Shorter secrets are parts of everyday words, which no text could do without: they are hidden where they are all of a value.
_CHARACTERS_MIN: Final = 4
#: Of a process; beyond, the oldest are forgotten: no connection logs in by a password that was renewed so often since.
_KEPT_MAX: Final = 256
_WORDS: Final = frozenset({"true", "false", "none", "required"})
_JSON_DEPTH: Final = 2


def secrets_of(settings: Settings) -> list[str]:
    """Return the values that must stand nowhere, the longest first."""
    values = {name: str(value) for name, value in to_flags(settings).items() if value}
    found = {value for name, value in values.items() if is_secret(name)}
    found |= {user.partition(":")[2] for value in values.values() for user in URL_PASSWORD.findall(value)}
    return sorted(found - _WORDS - {""}, key=len, reverse=True)


def hide(content: Any, secrets: Iterable[str]) -> Any:  # noqa: ANN401
    """Return data without secrets, in any text that is a value; names stay, for they are ours, and who reads lines looks for them."""
    return _hide(content, _forms_of(secrets))


class HiddenTexts:
    """The secrets of this process: those of its settings at the start, and those that each reload brought.

    A secret that was renewed stays one: connections that are open may still go by it, and it may be that of another system, too.
    """

    def __init__(self) -> None:
        self._secrets: dict[str, None] = {}
        self._forms = _Forms(frozenset(), ())

    def replace(self, secrets: Iterable[str]) -> None:
        """Hide these from now on, and no others."""
        self._secrets.clear()
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Hide these from now on, too."""
        for secret in secrets:
            self._secrets.pop(secret, None)
            self._secrets[secret] = None
        for oldest in list(self._secrets)[:-_KEPT_MAX]:
            del self._secrets[oldest]
        self._forms = _forms_of(self._secrets)

    def hide(self, content: Any) -> Any:  # noqa: ANN401
        """See the function."""
        return _hide(content, self._forms) if self._secrets else content


class _Forms(NamedTuple):
    """The texts that secrets may stand in a value as."""

    #: Hidden where they are all of it.
    whole: frozenset[str]
    #: Hidden anywhere, the longest first.
    parts: Sequence[str]


def _forms_of(secrets: Iterable[str]) -> _Forms:
    ordered = sorted(secrets, key=len, reverse=True)
    parts = [form for secret in ordered if len(secret) >= _CHARACTERS_MIN for form in _forms(secret)]
    return _Forms(frozenset(secret for secret in ordered if len(secret) < _CHARACTERS_MIN), parts)


def _hide(content: Any, forms: _Forms) -> Any:  # noqa: ANN401
    if isinstance(content, Mapping):
        return {name: _hide(value, forms) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_hide(value, forms) for value in content]
    if isinstance(content, str):
        if content in forms.whole:
            return REDACTED
        for form in forms.parts:
            content = content.replace(form, REDACTED)
    return content


def _forms(secret: str) -> list[str]:
    """Return a text as it is, as JSON writes it, and as JSON writes that: a log line is JSON, and may hold some."""
    forms = {secret: None}
    for _ in range(_JSON_DEPTH):
        forms |= {json.dumps(each, ensure_ascii=is_ascii)[1:-1]: None for each in forms for is_ascii in (False, True)}
    return sorted(forms, key=len, reverse=True)
