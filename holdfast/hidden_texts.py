r"""What must stand in no line that others read: secrets, however something has written them, and what looks like one.

A secret that is compared as it is would be missed where a library shows it: `repr` writes other characters for half of a password, JSON
others again, a URL others still, and each may have written what another one wrote. So nothing here knows a list of writings.
A text is looked through as it is, and again after each round of taking the escapes of URLs and HTML out of it. Each time a secret is
sought character by character, each in all the ways in which a backslash escapes it, after any number of them: `ä` is `ä`, `\xe4`,
`\\xc3\\xa4`, `\u00e4`, `\303\244`, and the two characters that its bytes are in Latin-1.
Base64 and hexadecimal digits leave no character alone; a secret is sought in each of them, too.
"""

from __future__ import annotations

import html
import re
import sys
import threading
from base64 import b64encode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

REDACTED: Final = "(hidden)"
#: As in `https://user:password@host`.
URL_PASSWORD: Final = re.compile(r"(?<=://)[^/\s@:]++:[^/\s@]++(?=@)")

#: Shorter secrets are parts of everyday words, which no text could do without: they are hidden where they are all of a value.
_CHARACTERS_MIN: Final = 4
#: Of a process; beyond, the oldest are forgotten: no connection logs in by a password that was renewed so often since.
_KEPT_MAX: Final = 256
#: They replace each other by themselves, so they are kept apart, or they would push out the secrets that stay.
_TOKENS_KEPT_MAX: Final = 16
#: Longer ones, such as a key in PEM, are base64 already.
_ENCODED_BYTES_MAX: Final = 512
#: Bytes that base64 writes together, and in how many characters.
_BASE64: Final = (3, 4)
#: What no writer escapes.
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]+")
_NAMED_ESCAPES: Final = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\v": "v", "\a": "a", "\0": "0"}
#: Escapes of URLs and of HTML, among them such as JSON writes with a backslash because HTML knows them.
_ESCAPES: Final = re.compile(
    r"(?:%|(?<!\\)\\++(?:u00|x)(?=2[56]))(?P<byte>[0-9A-Fa-f]{2})|&(?:[A-Za-z]{2,8}|#(?P<decimal>[0-9]{1,7})|#[xX](?P<hexadecimal>[0-9A-Fa-f]{1,6}));"
)
#: Of such escapes within others.
_ROUNDS_MAX: Final = 8
#: Of what follows it, `Bearer` itself stays.
_BEARER: Final = re.compile(r"(\b[Bb](?:earer|EARER)(?:%20|[ +])++)[A-Za-z0-9._~+/-]{8,}+=*+")
_AFTER_IT: Final = rf"\1{REDACTED}"
#: Tokens and keys of anybody's, which need not be known to be recognized: JSON Web Tokens, what follows `Bearer`, PEM, and passwords in
#: URLs. Each has a part that is there in any case, a pattern, and what is written instead. No pattern looks at a character more than a
#: few times, because clients choose what is looked through.
_RECOGNIZED: Final = (
    ("eyJ", re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{4,}+(?:\.[A-Za-z0-9_-]*+)?"), REDACTED),
    ("earer", _BEARER, _AFTER_IT),
    ("EARER", _BEARER, _AFTER_IT),
    ("PRIVATE KEY", re.compile(r"-----BEGIN [A-Z ]*+-----.*?(?:-----END [A-Z ]*+-----|\Z)", re.DOTALL), REDACTED),
    ("://", URL_PASSWORD, REDACTED),
)


def hide(content: Any, secrets: Iterable[str]) -> Any:  # noqa: ANN401
    """Return data without secrets, in any text that is a value; names stay, for they are ours, and who reads lines looks for them."""
    return _hide(content, _sought(secrets))


class HiddenTexts:
    """The secrets of a process: those of its settings at the start, those that each reload brought, and tokens.

    A secret that was renewed stays one: connections that are open may still go by it, and it may be that of another system, too.
    Threads may share it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: OrderedDict[str, None] = OrderedDict()
        self._tokens: OrderedDict[str, None] = OrderedDict()
        self._found = _sought(())

    def replace(self, secrets: Iterable[str]) -> None:
        """Hide these from now on, and no others but tokens."""
        with self._lock:
            self._secrets.clear()
            self._keep(self._secrets, secrets, _KEPT_MAX)
            self._found = _sought([*self._secrets, *self._tokens])

    def add(self, secrets: Iterable[str]) -> None:
        """Hide these from now on, too."""
        with self._lock:
            self._keep(self._secrets, secrets, _KEPT_MAX)

    def add_token(self, token: str) -> None:
        """Hide a token from now on, and the last few before it."""
        with self._lock:
            self._keep(self._tokens, [token], _TOKENS_KEPT_MAX)

    def hide(self, content: Any) -> Any:  # noqa: ANN401
        """See the function."""
        return _hide(content, self._found)

    def _keep(self, kept: OrderedDict[str, None], added: Iterable[str], kept_max: int) -> None:
        added = list(added)
        is_known = kept.keys() >= set(added)
        for each in added:
            kept[each] = None
            kept.move_to_end(each)
        while len(kept) > kept_max:
            kept.popitem(last=False)
        if not is_known:
            self._found = _sought([*self._secrets, *self._tokens])


class _Writing(NamedTuple):
    """One way in which a secret may stand in a text."""

    #: A part that is there in any case; most texts do not hold it, and are not looked at further.
    anchor: str
    #: None: the anchor is all of it.
    pattern: re.Pattern[str] | None


class _Sought(NamedTuple):
    """What is looked for."""

    #: Hidden where they are all of a value.
    whole: frozenset[str]
    #: Hidden anywhere, those of the longest secret first.
    writings: Sequence[_Writing]


def _sought(secrets: Iterable[str]) -> _Sought:
    ordered = sorted(filter(None, secrets), key=len, reverse=True)
    writings = {
        text: _writing_of(text)
        for secret in ordered
        if len(secret) >= _CHARACTERS_MIN
        for text in (secret, *_encoded(secret))
    }
    return _Sought(frozenset(each for each in ordered if len(each) < _CHARACTERS_MIN), tuple(writings.values()))


def _hide(content: Any, sought: _Sought) -> Any:  # noqa: ANN401
    if isinstance(content, Mapping):
        return {name: _hide(value, sought) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_hide(value, sought) for value in content]
    if isinstance(content, str):
        return _hide_in(content, sought)
    if content is None or isinstance(content, (bool, int, float)):
        return content
    # A line shows anything else by its `repr`, and bytes within others as well.
    shown = repr(content)
    hidden = _hide_in(shown, sought)
    return content if hidden == shown else hidden


def _hide_in(text: str, sought: _Sought) -> str:
    if text in sought.whole:
        return REDACTED
    writings = [each for each in sought.writings if each.anchor in text]
    if patterns := [pattern for _, pattern in writings if pattern is not None]:
        text = _hide_patterns(text, patterns)
    for anchor, pattern in writings:
        if pattern is None:
            text = text.replace(anchor, REDACTED)
    for anchor, recognized, instead in _RECOGNIZED:
        if anchor in text:
            text = recognized.sub(instead, text)
    return text


def _hide_patterns(text: str, patterns: Sequence[re.Pattern[str]]) -> str:
    """Hide what patterns find in a text, and in what is left of it when escapes of URLs and of HTML are taken out."""
    #: Where the text of the round before has what each character of this round was, and where that ends.
    starts: list[int] = list(range(len(text)))
    ends = [start + 1 for start in starts]
    found: list[tuple[int, int]] = []
    current = text
    for _ in range(_ROUNDS_MAX):
        for pattern in patterns:
            found += [(starts[each.start()], ends[each.end() - 1]) for each in pattern.finditer(current)]
        escapes = list(_ESCAPES.finditer(current))
        if not escapes:
            break
        pieces: list[str] = []
        next_starts: list[int] = []
        next_ends: list[int] = []
        place = 0
        for each in (*escapes, None):
            begin = len(current) if each is None else each.start()
            pieces.append(current[place:begin])
            next_starts += starts[place:begin]
            next_ends += ends[place:begin]
            if each is not None:
                place = each.end()
                plain = _unescaped(each)
                pieces.append(plain)
                next_starts += [starts[begin]] * len(plain)
                next_ends += [ends[place - 1]] * len(plain)
        current, starts, ends = "".join(pieces), next_starts, next_ends
    hidden: list[str] = []
    place = 0
    for start, end in sorted(found):
        if start >= place:
            hidden += [text[place:start], REDACTED]
        place = max(place, end)
    return "".join([*hidden, text[place:]])


def _unescaped(escape: re.Match[str]) -> str:
    """Return what an escape stands for; bytes of UTF-8 are the characters that they are in Latin-1."""
    if escape["byte"] or escape["hexadecimal"]:
        return _character(int(escape["byte"] or escape["hexadecimal"], 16))
    # Names that nothing has stay as they are.
    return _character(int(escape["decimal"])) if escape["decimal"] else html.unescape(escape[0])


def _character(number: int) -> str:
    return chr(number) if number <= sys.maxunicode else ""


def _encoded(secret: str) -> Iterator[str]:
    """Yield a secret in base64, wherever it begins in what was encoded, and in hexadecimal digits."""
    data = secret.encode("utf-8", "surrogatepass")
    if len(data) > _ENCODED_BYTES_MAX:
        return
    yield data.hex()
    yield data.hex().upper()
    size_bytes, characters = _BASE64
    for before in range(size_bytes):
        # The characters at both ends depend on other bytes as well.
        first, end = -(-before * characters // size_bytes), (before + len(data)) * characters // size_bytes
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(b"\0" * before + data).decode()[first:end]


def _writing_of(text: str) -> _Writing:
    plain = max(_PLAIN.findall(text), key=len, default="")
    if plain == text:
        return _Writing(text, None)
    # A run of backslashes is one piece, and each piece takes all the backslashes before it and gives none back: a text full of
    # them takes no longer than another one.
    pieces = [(each, len(list(run))) for each, run in groupby(text)]
    pattern = "".join(_pattern_of(each, count, is_first=number == 0) for number, (each, count) in enumerate(pieces))
    return _Writing(plain, re.compile(pattern))


def _pattern_of(character: str, count: int, *, is_first: bool) -> str:
    """Return what finds a run of one character, however backslashes escape each of them."""
    if character == "\\":
        escaped = rf"(?:\\*+(?<=\\)(?:x5c|u005c|134)){{{count}}}"
        return r"(?<!\\)" * is_first + rf"(?:{escaped}|\\{{{count},}}+)"
    if _PLAIN.fullmatch(character):
        return re.escape(character) * count
    one = f"(?:{'|'.join(_ways(character))})"
    return r"\\*+".join(([] if is_first else [""]) + [one] * count)


def _ways(character: str) -> Iterator[str]:
    number, data = ord(character), character.encode("utf-8", "surrogatepass")
    yield re.escape(character)
    units = character.encode("utf-16-be", "surrogatepass")
    escapes = [
        *([f"x{number:02x}"] if number < 0x100 else []),
        f"U{number:08x}",
        r"\\++".join(f"u{units[place : place + 2].hex()}" for place in range(0, len(units), 2)),
        r"\\++".join(f"x{byte:02x}" for byte in data),
        r"\\++".join(f"{byte:03o}" for byte in data),
    ]
    named = f"{_NAMED_ESCAPES[character]}|" if character in _NAMED_ESCAPES else ""
    # The backslashes before it are taken already.
    yield rf"(?<=\\)(?:{named}(?i:{'|'.join(escapes)}))"
    if character == " ":
        yield r"\+"
    if number > 0x7F:
        # Where bytes were read as Latin-1, and written again, or could not be read at all.
        yield r"\\*+".join("(?:" + "|".join(_ways_of_byte(byte)) + ")" for byte in data)
        yield rf"[?\ufffd]{{1,{len(data)}}}"


def _ways_of_byte(byte: int) -> Iterator[str]:
    """Yield how a byte above ASCII stands in a text where it was read as Latin-1; it has two bytes in UTF-8 then."""
    character = chr(byte)
    yield re.escape(character)
    escapes = [f"x{byte:02x}", f"u00{byte:02x}", r"\\++".join(f"x{each:02x}" for each in character.encode())]
    yield rf"(?<=\\)(?i:{'|'.join(escapes)})"
    yield re.escape(character.encode().decode("latin-1"))


#: As the logging, these are of the process.
HIDDEN_TEXTS: Final = HiddenTexts()
