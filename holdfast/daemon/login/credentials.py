"""What is kept of a password, and the users who have one: salted, so that no password can be read from it.

PLAIN and SCRAM are checked against the same credentials.
A user who does not exist has credentials, too, which no password fits: so its login takes the same steps and the same time.
Their salt comes of a secret that is kept beside the credentials, so it is the same after a restart, after a change of other users, and
in all nodes that have the file; its length and the iterations are those that most users have.

Source: RFC 5802, section 3 and 9; PostgreSQL's `mock_scram_secret`, whose secret is the cluster's; Kafka's `ScramCredential`. (Kafka's
brokers end the login of an unknown user at its first message, which tells who exists.)
"""

from __future__ import annotations

import hmac
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import shake_256
from typing import Final, NamedTuple, TypeVar

from holdfast.kafka.protocol.scram import KEY_BYTES, SCRAM_SHA_512, Keys, ScramRefused, derive_keys

ITERATIONS_DEFAULT: Final = 8_192
#: As RFC 7677 demands it, and as a login may cost.
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 1_000_000
_SALT_BYTES: Final = 32
#: Of what the salts of users who do not exist come of.
SECRET_BYTES: Final = 32

T = TypeVar("T")

#: Keys by user and by mechanism.
Credentials = Mapping[str, Mapping[str, Keys]]


class KeptUsers(NamedTuple):
    """What is kept of all users."""

    credentials: Credentials
    #: Of what the salts of users who do not exist come of; empty: there is none yet.
    secret: bytes = b""

    def changed(self, credentials: Credentials) -> KeptUsers:
        """Return these with other credentials, and with a secret in any case."""
        return KeptUsers(credentials, self.secret or os.urandom(SECRET_BYTES))


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

    def __init__(self, kept: KeptUsers) -> None:
        """Hold what is kept of them."""
        self._credentials, self._secret = kept
        all_keys = [own for own in self._credentials.values() if own]
        #: What a user who does not exist would have, by mechanism: length of the salt, and iterations.
        self._usual = {
            mechanism: _most_common(
                ((len(own[mechanism].salt), own[mechanism].iterations) for own in all_keys if mechanism in own),
                (_SALT_BYTES, ITERATIONS_DEFAULT),
            )
            for mechanism in KEY_BYTES
        }
        self._usual_mechanism = _most_common(map(_strongest, all_keys), SCRAM_SHA_512)

    def __len__(self) -> int:
        return len(self._credentials)

    def find(self, name: str, mechanism: str) -> Keys:
        """Return the keys of a user under a mechanism; of one who has none, keys that no password fits."""
        unfit = self._make_unfit(name, mechanism)  # in any case, for the time that it takes
        return self._credentials.get(name, {}).get(mechanism, unfit)

    def strongest_of(self, name: str) -> str:
        """Return the strongest mechanism of a user, by which a password is checked; of one who has none, the usual one."""
        own = self._credentials.get(name)
        return _strongest(own) if own else self._usual_mechanism

    def _make_unfit(self, name: str, mechanism: str) -> Keys:
        size, (salt_bytes, iterations) = KEY_BYTES[mechanism], self._usual[mechanism]
        salt, stored_key, server_key = (
            shake_256(self._secret + f"{mechanism} {purpose} {name}".encode()).digest(length)
            for purpose, length in (("salt", salt_bytes), ("stored", size), ("server", size))
        )
        return Keys(salt, stored_key, server_key, iterations)


def _strongest(own: Mapping[str, Keys]) -> str:
    return max(own, key=list(KEY_BYTES).index)


def _most_common(values: Iterable[T], default: T) -> T:
    """Return the value that is there most often; of two such, the same in all nodes."""
    counts = Counter(values)
    return max(counts, key=lambda value: (counts[value], value), default=default)
