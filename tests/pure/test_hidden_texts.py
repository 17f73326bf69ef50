"""A secret is found in a text, however something has written it, and texts that hold none stay as they are."""

import html
import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.hidden_texts import REDACTED, HiddenTexts, hide

Writer = Callable[[str], str]

#: What libraries make of a text that holds a secret, each without losing any of it.
WRITERS: dict[str, Writer] = {
    "as it is": lambda text: text,
    "repr of a text": lambda text: repr(text),
    "repr of bytes": lambda text: repr(text.encode("utf-8", "surrogatepass")),
    "repr in a structure": lambda text: repr({"auth": (0, [text.encode("utf-8", "surrogatepass")])}),
    "ascii": lambda text: ascii(text),
    "unicode_escape": lambda text: text.encode("unicode_escape").decode(),
    "JSON": lambda text: json.dumps({"a": text}, ensure_ascii=False),
    "JSON in ASCII": lambda text: json.dumps([text]),
    "URL": lambda text: quote(text.encode("utf-8", "surrogatepass"), safe=""),
    "form": lambda text: quote_plus(text.encode("utf-8", "surrogatepass")),
    "HTML": lambda text: html.escape(text),
    "XML": lambda text: text.encode("ascii", "xmlcharrefreplace").decode(),
}
#: Those that read what is written as something else; none comes after another.
FIRST_WRITERS: dict[str, Writer] = {
    "Latin-1": lambda text: text.encode("utf-8", "surrogatepass").decode("latin-1"),
    "question marks": lambda text: text.encode("ascii", "replace").decode(),
    "octal": lambda text: "".join(
        chr(byte) if 0x20 < byte < 0x7F and byte != 0x5C else f"\\{byte:03o}"
        for byte in text.encode("utf-8", "surrogatepass")
    ),
}
#: Those that leave nothing of the text to write again.
LAST_WRITERS: dict[str, Writer] = {
    "base64": lambda text: b64encode(text.encode("utf-8", "surrogatepass")).decode(),
    "base64 of URLs": lambda text: urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode(),
    "hexadecimal": lambda text: text.encode("utf-8", "surrogatepass").hex(),
}
#: Has every kind of character that a writer treats by itself; no two of its parts are alike.
SECRET = "kel\xe4p'\"-S\\e\tcr%t &+<1>\u0416\U0001f30a/z9"


@pytest.mark.parametrize("second", WRITERS)
@pytest.mark.parametrize("first", WRITERS | FIRST_WRITERS)
def test_a_secret_is_found_however_two_writers_in_a_row_have_written_it(first: str, second: str) -> None:
    text = f"n,,\x01user\0{SECRET}\x01 'it's' \"so\""
    written = WRITERS[second]((WRITERS | FIRST_WRITERS)[first](text))
    found = hide(written, [SECRET])
    assert REDACTED in found
    assert "cr" not in found.replace("escape", "")
    assert "z9" not in found


@pytest.mark.parametrize("last", LAST_WRITERS)
@pytest.mark.parametrize("before", ["", "x", "xy", "\0holdfast\0"])
@pytest.mark.parametrize("secret", [SECRET, "tide", "client secret/1"])
def test_a_secret_is_found_where_all_of_a_text_was_encoded(secret: str, before: str, last: str) -> None:
    found = hide(f"Authorization {LAST_WRITERS[last](before + secret + 'after')}", [secret])
    assert REDACTED in found
    assert LAST_WRITERS[last](secret)[4:-4] not in found or len(secret) == 4


@example(secret="\\\\\\\\", written_by=["repr of a text", "JSON"])
@example(secret="'\"'\"", written_by=["repr of bytes", "repr of a text"])
@example(secret="00\n\n0", written_by=["JSON in ASCII", "HTML"])
@given(
    secret=st.text(min_size=4, max_size=12),
    written_by=st.lists(st.sampled_from(sorted(WRITERS)), min_size=1, max_size=3),
)
def test_any_secret_is_found(secret: str, written_by: list[str]) -> None:
    written = secret
    for name in written_by:
        written = WRITERS[name](f"«{written}»")
    assert REDACTED in hide(written, [secret])


def test_bytes_and_other_things_are_looked_through_as_they_are_shown() -> None:
    class Request:
        def __repr__(self) -> str:
            return f"Request(auth={SECRET.encode()!r})"

    found = hide(
        {"a": SECRET.encode(), "b": [Request()], "c": (memoryview(SECRET.encode()),), "d": 1, "e": b"x"}, [SECRET]
    )
    assert found["a"] == f"b'{REDACTED}'"
    assert found["b"] == [f"Request(auth=b'{REDACTED}')"]
    assert (found["d"], found["e"]) == (1, b"x")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Authorization: Bearer abc.DEF-123_x~y+z/0==", f"Authorization: Bearer {REDACTED}"),
        (
            "b'n,,\\x01auth=Bearer eyJhbGciOi.BEARER-Secret-99.sig\\x01\\x01'",
            f"b'n,,\\x01auth=Bearer {REDACTED}\\x01\\x01'",
        ),
        ("header=BEARER%20abcdefghi", f"header=BEARER%20{REDACTED}"),
        ('{"access_token":"eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjF9.c2ln"}', f'{{"access_token":"{REDACTED}"}}'),
        ("-----BEGIN EC PRIVATE KEY-----\nMHc=\n-----END EC PRIVATE KEY-----\n", f"{REDACTED}\n"),
        ("-----BEGIN PRIVATE KEY-----\\nMHc= is cut", REDACTED),
        ("at https://kelp:planted:1@store.example/x", f"at https://{REDACTED}@store.example/x"),
        ("Send the token as `Authorization: Bearer`.", "Send the token as `Authorization: Bearer`."),
        ("http://[::1]:9492/api/v1/status", "http://[::1]:9492/api/v1/status"),
    ],
)
def test_what_is_a_secret_by_its_form_need_not_be_known(text: str, left: str) -> None:
    assert HiddenTexts().hide(text) == left


@given(st.text(max_size=60))
def test_a_text_without_a_secret_stays_as_it_is(text: str) -> None:
    assert hide(text, ["no-text-holds-this"]) == text


@pytest.mark.parametrize("piece", ["\\", "eyJ-", "Bearer ", "://a:", ":", "k\\", "%25", "-----BEGIN ", "&amp;", "kel?"])
def test_a_text_of_a_client_costs_no_more_than_its_length(piece: str) -> None:
    """What grows faster takes hours here."""
    text = piece * (300_000 // len(piece))
    hidden = HiddenTexts()
    hidden.replace([SECRET, "\\\\\\\\", "k\\\\", "\xe4\xe4\xe4\xe4", "%%%%"])
    hidden.hide(text + "kel://earer EARER eyJ PRIVATE KEY")


def test_tokens_push_out_no_secret_that_stays() -> None:
    hidden = HiddenTexts()
    hidden.add(["the-password"])
    for number in range(1_000):
        hidden.add_token(f"token-{number:04}")
    assert hidden.hide(["the-password", "token-0000", "token-0999"]) == [REDACTED, "token-0000", REDACTED]
    hidden.replace([])
    assert hidden.hide(["the-password", "token-0999"]) == ["the-password", REDACTED], "a token is none of the settings"
