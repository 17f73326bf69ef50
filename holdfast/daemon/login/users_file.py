"""Users as lines of a file, which holds no password.

A line names a user, a mechanism, and the credential in the form of Kafka's tools; lines that begin with # are comments:

    alice SCRAM-SHA-512 salt=…,stored_key=…,server_key=…,iterations=8192

One line of two words has the secret that hides who exists (`credentials`), and is the same in all nodes:

    secret …

Source: Kafka's `ScramCredentialUtils`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdfast.daemon.file_replacement import explain_unreadable, explain_unwritable, replace_file
from holdfast.daemon.login.credentials import ITERATIONS_MAX, ITERATIONS_MIN, SECRET_BYTES, KeptUsers, Users
from holdfast.kafka.protocol.scram import CHARACTERS_MAX, KEY_BYTES, SALT_BYTES_MIN, Keys, ScramRefused, prepare_name

#: Kafka's name of whoever has not logged in.
_NOBODY: Final = "ANONYMOUS"

_FIELDS: Final = Keys._fields
_SECRET: Final = "secret"  # noqa: S105
_HEAD: Final = "# Users of Holdfast; `holdfast users` writes this file.\n"


class UsersFileWrong(Exception):
    """A file of users cannot be used; the text names the file, the line and the field."""


class UsersFileMissing(UsersFileWrong):
    """There is no such file."""


def why_no_name(name: str) -> str:
    """Return what keeps a text from being the name of a user; empty if nothing does."""
    if not 0 < len(name) <= CHARACTERS_MAX:
        return f"a name has 1 to {CHARACTERS_MAX} characters"
    if not name.isprintable() or any(each.isspace() for each in name) or name.startswith("#"):
        return "a name is one printable word that does not begin with #"
    if name == _NOBODY:
        return f"{_NOBODY} is the name of clients that have not logged in"
    try:
        prepared = prepare_name(name)
    except ScramRefused:
        return "a name has characters that SASLprep (RFC 4013) allows"
    # Who logs in is looked up by it, and rules, quotas and the audit log have it.
    return "" if prepared == name else f"all ways to write it are one name, which is {prepared!r}"


def read_users(path: Path) -> Users:
    """Return the users of a file.

    Raises:
        UsersFileWrong: it cannot be read, a line is wrong, or it has no secret.
    """
    kept = read_kept(path)
    if not kept.secret:
        fix = "`holdfast users add` writes one, and all nodes must have the same"
        raise UsersFileWrong(f"The users file {path} has no line {_SECRET!r}, which hides who exists; {fix}.")
    return Users(kept)


def read_kept(path: Path, *, may_be_missing: bool = False) -> KeptUsers:
    """Return what a file holds; of one that is missing, where it may be, nothing.

    Raises:
        UsersFileMissing: there is none.
        UsersFileWrong: it cannot be read, or a line is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        if may_be_missing:
            return KeptUsers({})
        fix = "`holdfast users add` makes one"
        raise UsersFileMissing(f"The users file {path} cannot be read ({error.strerror}); {fix}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsersFileWrong(explain_unreadable(f"The users file {path}", error)) from None
    try:
        return parse_kept(text)
    except ValueError as error:
        raise UsersFileWrong(f"The users file {path} is wrong in {error}.") from None


def parse_kept(text: str) -> KeptUsers:
    """Return what the lines of a text hold.

    Raises:
        ValueError: a line is wrong; the text names its number and the field.
    """
    found: dict[str, dict[str, Keys]] = {}
    secret = b""
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        try:
            if len(words) == 2 and words[0] == _SECRET:
                secret = _parse_secret(words[1], secret)
                continue
            name, mechanism, keys = _parse_line(words)
            if mechanism in found.get(name, {}):
                raise ValueError(f"{name} has {mechanism} twice")
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        found.setdefault(name, {})[mechanism] = keys
    return KeptUsers(found, secret)


def render_kept(kept: KeptUsers) -> str:
    """Return the text of a file that holds these users."""
    secret = [f"{_SECRET} {b64encode(kept.secret).decode()}\n"] if kept.secret else []
    users = sorted(kept.credentials.items())
    return "".join(
        [_HEAD, *secret, *(_render_line(name, each, own[each]) for name, own in users for each in sorted(own))]
    )


def write_kept(path: Path, kept: KeptUsers) -> None:
    """Replace a file at once by one that only its owner reads; the owner stays, so a running node can read it, too.

    Raises:
        UsersFileWrong: it cannot be written.
    """
    try:
        replace_file(path, render_kept(kept), mode=0o600, mode_max=0o640)
    except OSError as error:
        raise UsersFileWrong(explain_unwritable(f"The users file {path}", error)) from None


def _parse_secret(text: str, former: bytes) -> bytes:
    if former:
        raise ValueError(f"{_SECRET} is there twice")
    secret = _parse_bytes({_SECRET: text}, _SECRET)
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"{_SECRET} has {len(secret)} bytes; it must have {SECRET_BYTES}")
    return secret


def _parse_line(words: list[str]) -> tuple[str, str, Keys]:
    if len(words) != 3:
        raise ValueError(f"it has {len(words)} words; it must be: name, mechanism, credential")
    name, mechanism, text = words
    if why := why_no_name(name):
        raise ValueError(f"the name is {name!r}; {why}")
    if mechanism not in KEY_BYTES:
        raise ValueError(f"the mechanism is {mechanism!r}; it must be one of {', '.join(KEY_BYTES)}")
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    if sorted(fields) != sorted(_FIELDS):
        raise ValueError(f"the credential has the fields {', '.join(fields)}; it must have {', '.join(_FIELDS)}")
    salt = _parse_bytes(fields, "salt")
    if len(salt) < SALT_BYTES_MIN:
        raise ValueError(f"salt has {len(salt)} bytes; it must have {SALT_BYTES_MIN} at least")
    stored_key, server_key = (_parse_key(fields, each, mechanism) for each in ("stored_key", "server_key"))
    iterations = fields["iterations"]
    if not (iterations.isascii() and iterations.isdecimal()) or not (
        len(iterations) < 10 and ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX
    ):
        raise ValueError(f"iterations is {iterations!r}; it must be a number from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return name, mechanism, Keys(salt, stored_key, server_key, int(iterations))


def _parse_bytes(fields: Mapping[str, str], field: str) -> bytes:
    try:
        return b64decode(fields[field], validate=True)
    except ValueError:
        raise ValueError(f"{field} is not base64") from None


def _parse_key(fields: Mapping[str, str], field: str, mechanism: str) -> bytes:
    key = _parse_bytes(fields, field)
    if len(key) != KEY_BYTES[mechanism]:
        raise ValueError(f"{field} has {len(key)} bytes; it must have {KEY_BYTES[mechanism]}")
    return key


def _render_line(name: str, mechanism: str, keys: Keys) -> str:
    texts = [b64encode(each).decode() for each in keys[:3]]
    fields = zip(_FIELDS, (*texts, keys.iterations), strict=True)
    return f"{name} {mechanism} {','.join(f'{field}={value}' for field, value in fields)}\n"
