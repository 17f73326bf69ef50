"""SCRAM, from both sides; the one module that imports scramp.

scramp bounds the iterations that either side may name, and refuses what is no message with one exception.

Source: RFC 5802, RFC 7677.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Final, NamedTuple

from scramp import ScramClient, ScramException, ScramMechanism  # type: ignore[import-untyped]  # it ships no types
from scramp.utils import saslprep  # type: ignore[import-untyped]  # as above

SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
#: Each with the bytes of its keys; the strongest last.
KEY_BYTES: Final = {SCRAM_SHA_256: 32, SCRAM_SHA_512: 64}
#: The least that scramp takes.
SALT_BYTES_MIN: Final = 12
#: Longer names and passwords are none. SASLprep looks at each character a dozen times, in Python.
CHARACTERS_MAX: Final = 255
#: The Unicode of RFC 3454.
_UNICODE: Final = unicodedata.ucd_3_2_0


class ScramRefused(Exception):
    """What the other side says is no message of SCRAM, or proves nothing."""


class Keys(NamedTuple):
    """What a server keeps of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def prepare_name(name: str) -> str:
    """Return a name as SASLprep (RFC 4013) has it: one text for all ways to write it.

    Raises:
        ScramRefused: it is too long, or holds characters that no name has.
    """
    bound_preparation(name)
    if name.isascii() and name.isprintable():  # which SASLprep leaves as it is
        return name
    try:
        prepared: str = saslprep(name)
    except ScramException as error:
        raise ScramRefused(f"its name is none: {error}") from None
    return prepared


def bound_preparation(text: str) -> None:
    """Refuse a text of somebody unknown that SASLprep would have more work with than with one of `CHARACTERS_MAX` characters.

    One character may stand for 18 (U+FDFA), so a text is looked at as it would be, which takes a hundredth of the time of preparing it.

    Raises:
        ScramRefused: it is too long.
    """
    if len(text) <= CHARACTERS_MAX and text.isascii():
        return
    if len(text) > CHARACTERS_MAX or len(_UNICODE.normalize("NFKC", text)) > CHARACTERS_MAX:
        raise ScramRefused(f"its name or password has more than {CHARACTERS_MAX} characters, or would by RFC 4013")


def derive_keys(mechanism: str, password: str, iterations: int, salt: bytes | None = None) -> Keys:
    """Return what a server keeps of a password; without a salt under a new one.

    Raises:
        ScramRefused: the password holds characters that none has, or the iterations are too few.
    """
    try:
        return Keys(*ScramMechanism(mechanism).make_auth_info(password, iterations, salt))
    except ScramException as error:
        raise ScramRefused(str(error)) from None


class ServerSide:
    """One login from the side of the server: `challenge`, then `verify`."""

    def __init__(self, mechanism: str, find_keys: Callable[[str], Keys], nonce: str | None = None) -> None:
        """Look users up with `find_keys`, which always has some; without a `nonce` a random one is taken."""
        self._server = ScramMechanism(mechanism).make_server(lambda name: tuple(find_keys(name)), s_nonce=nonce)

    def challenge(self, message: bytes) -> bytes:
        """Return the answer to the first message of the client.

        Raises:
            ScramRefused: it is none.
        """
        # scramp prepares the name before it does anything else with it.
        for attribute in message.split(b","):
            if attribute.startswith(b"n="):
                name = attribute.removeprefix(b"n=").decode(errors="replace")
                bound_preparation(name.replace("=2C", ",").replace("=3D", "="))
        return self._answer(message, self._server.set_client_first, self._server.get_server_first)

    def verify(self, message: bytes) -> bytes:
        """Return the answer to the last message of the client, which has proved who it is.

        Raises:
            ScramRefused: it has not.
        """
        return self._answer(message, self._server.set_client_final, self._server.get_server_final)

    def _answer(self, message: bytes, take: Callable[[str], object], give: Callable[[], str]) -> bytes:
        try:
            take(message.decode())
            return give().encode()
        except UnicodeDecodeError:
            raise ScramRefused("a message is not UTF-8") from None
        except ScramException as error:
            raise ScramRefused(str(error)) from None


class ClientSide:
    """One login from the side of the client: `begin`, `prove`, then `check`."""

    def __init__(self, mechanism: str, name: str, password: str, nonce: str | None = None) -> None:
        """Log in as `name`; without a `nonce` a random one is taken.

        Raises:
            ScramRefused: the name or the password holds characters that none has.
        """
        try:
            self._client = ScramClient([mechanism], name, password, c_nonce=nonce)
        except ScramException as error:
            raise ScramRefused(str(error)) from None

    def begin(self) -> bytes:
        """Return the first message."""
        message: str = self._client.get_client_first()
        return message.encode()

    def prove(self, message: bytes) -> bytes:
        """Return the answer to the challenge of the server.

        Raises:
            ScramRefused: it is none.
        """
        try:
            self._client.set_server_first(message.decode())
            proof: str = self._client.get_client_final()
        except (UnicodeDecodeError, ScramException) as error:
            raise ScramRefused(str(error)) from None
        return proof.encode()

    def check(self, message: bytes) -> None:
        """Check that the server knows the password, too.

        Raises:
            ScramRefused: it does not.
        """
        try:
            self._client.set_server_final(message.decode())
        except (UnicodeDecodeError, ScramException) as error:
            raise ScramRefused(str(error)) from None
