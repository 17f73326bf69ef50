"""Whom a certificate names, as Kafka writes it, and until when it is valid.

Source: RFC 2253, as Java's `X500Principal.getName` follows it, whose text Kafka's principals are made of.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from asn1crypto import pem, x509  # type: ignore[import-untyped]  # it ships no types

#: What RFC 2253 has a short name for; anything else is written by its number and its bytes.
_SHORT: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')


class CertificateWrong(Exception):
    """Bytes that are no certificate."""


def distinguished_name(der: bytes) -> str:
    """Return the name of a certificate's subject, such as `CN=alice,OU=Nodes,O=Kelp`.

    Raises:
        CertificateWrong: the bytes are no certificate.
    """
    try:
        relative = list(x509.Certificate.load(der).subject.chosen)
        return ",".join("+".join(map(_show, each)) for each in reversed(relative))
    except ValueError as error:
        raise CertificateWrong(f"the certificate cannot be read: {error}") from None


def valid_until(text: bytes) -> datetime:
    """Return when the first certificate of a PEM file ends, in UTC; after it, no client takes it.

    Raises:
        CertificateWrong: the file has none.
    """
    try:
        for kind, _, der in pem.unarmor(text, multiple=True):
            if kind == "CERTIFICATE":
                end: datetime = x509.Certificate.load(der).not_valid_after
                return end
    except ValueError as error:
        raise CertificateWrong(f"the certificate cannot be read: {error}") from None
    raise CertificateWrong("the file holds no certificate")


def _show(attribute: Any) -> str:  # noqa: ANN401 - asn1crypto has no types
    number = attribute["type"].dotted
    if number not in _SHORT:
        return f"{number}=#{attribute['value'].dump().hex()}"
    return f"{_SHORT[number]}={''.join(_escape(attribute['value'].native))}"


def _escape(text: str) -> Iterator[str]:
    first, last = len(text) - len(text.lstrip(" ")), len(text.rstrip(" "))
    for place, character in enumerate(text):
        is_outer_space = character == " " and not first <= place < last
        yield f"\\{character}" if character in _ESCAPED or is_outer_space else character
