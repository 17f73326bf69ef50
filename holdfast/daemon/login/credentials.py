"""What is kept of a password, and the users who have one: salted, so that no password can be read from it.

PLAIN and SCRAM are checked against the same credentials.
A user who does not exist has credentials, too, which no password fits: so its login takes the same steps and the same time.

Source: RFC 5802, section 3; Kafka's `ScramCredential`.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from holdfast.kafka.protocol.scram import KEY_BYTES, SCRAM_SHA_512, Keys, ScramRefused, derive_keys

ITERATIONS_DEFAULT: Final = 8_192
#: As RFC 7677 demands it, and as a login may cost.
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 1_000_000
_SALT_BYTES: Final = 32

#: Keys by user and by mechanism.
Credentials = Mapping[str, Mapping[str, Keys]]


class PasswordRefused(Exception):
    """A password that clients would not all send in the same bytes; the text says what would be right."""


def derive(mechanism: str, password: str, iterations: int = ITERATIONS_DEFAULT) -> Keys:
    """Return what is to be kept of a password, under a salt of its own.

    Raises:
        PasswordRefused: it is empty, or holds more than printable ASCII, which clients normalise in different ways.
    """
    if not password or not password.isascii() or not password.isprintable():
        raise PasswordRefused("a password has printable ASCII characters, and at least one")
    return derive_keys(mechanism, password, iterations)


def is_password(mechanism: str, keys: Keys, password: str) -> bool:
    """Tell whether a password fits; it takes as long as the iterations say, which is milliseconds."""
    try:
        found = derive_keys(mechanism, password, keys.iterations, keys.salt)
    except ScramRefused:
        return False
    return hmac.compare_digest(found.stored_key, keys.stored_key)


class Users:
    """The users who can log in."""

    def __init__(self, credentials: Credentials | None = None) -> None:
        """Hold these credentials."""
        self._credentials = credentials or {}
        secret = sha256()
        #: What a user who does not exist would have, by mechanism: as many as the first who exists.
        self._iterations: dict[str, int] = {}
        for own in self._credentials.values():
            for mechanism, keys in own.items():
                secret.update(keys.server_key)
                self._iterations.setdefault(mechanism, keys.iterations)
        # The same in all nodes with this file and after a restart: a salt that changes would give away who does not exist.
        self._secret = secret.digest()
        self._usual_mechanism = next((_strongest(own) for own in self._credentials.values()), SCRAM_SHA_512)

    def __len__(self) -> int:
        return len(self._credentials)

    def find(self, name: str, mechanism: str) -> Keys:
        """Return the keys of a user under a mechanism; of one who has none, keys that no password fits."""
        return self._credentials.get(name, {}).get(mechanism) or self._make_unfit(name, mechanism)

    def strongest_of(self, name: str) -> str:
        """Return the strongest mechanism of a user, by which a password is checked; of one who has none, the usual one."""
        own = self._credentials.get(name)
        return _strongest(own) if own else self._usual_mechanism

    def _make_unfit(self, name: str, mechanism: str) -> Keys:
        size = KEY_BYTES[mechanism]

        def make(purpose: str, length: int) -> bytes:
            return hmac.digest(self._secret, f"{mechanism} {purpose} {name}".encode(), "sha512")[:length]

        iterations = self._iterations.get(mechanism, ITERATIONS_DEFAULT)
        return Keys(make("salt", _SALT_BYTES), make("stored", size), make("server", size), iterations)


def _strongest(own: Mapping[str, Keys]) -> str:
    return max(own, key=list(KEY_BYTES).index)
