"""Whom a certificate names, as Kafka writes it, and until when it is valid.

A name is written as Java does it, or refused: two ways to write one name would be two principals, or one of two.

Source: RFC 2253, as Java's `X500Principal.getName` follows it, whose text Kafka's principals are made of.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from datetime import datetime
from typing import Any, ClassVar, Final

from asn1crypto import core, pem, x509  # type: ignore[import-untyped]  # it ships no types

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
#: The types of ASN.1 whose bytes Java reads as UTF-8: UTF8String, PrintableString, TeletexString, IA5String, GeneralString.
_TEXTS: Final = frozenset({12, 19, 20, 22, 27})
#: Whose bytes it reads as UTF-8, too, and gets another text than the one that was meant.
_BMP_STRING: Final = 30
#: Of a name: a hundred attributes and some. Each takes 50 µs of the event loop, and X.520 bounds all that are common to 64 characters.
_NAME_BYTES_MAX: Final = 2_048
#: What asn1crypto raises for bytes that are not what they should be.
_MALFORMED: Final = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)


class CertificateWrong(Exception):
    """Bytes that are no certificate, or one whose name cannot be a principal's; the text says why."""


class _Attribute(core.Sequence):  # type: ignore[misc]  # as above
    _fields: ClassVar = [("type", core.ObjectIdentifier), ("value", core.Any)]


class _Relative(core.SetOf):  # type: ignore[misc]  # as above
    _child_spec = _Attribute


class _Name(core.SequenceOf):  # type: ignore[misc]  # as above
    """A name whose values are not read yet: asn1crypto's own refuses types that Java takes."""

    _child_spec = _Relative


class _Signed(core.Sequence):  # type: ignore[misc]  # as above
    """What an authority signed, its subject in the bytes it has: asn1crypto's own encodes a name anew, not always as it was."""

    _fields: ClassVar = [("subject", _Name) if each[0] == "subject" else each for each in x509.TbsCertificate._fields]


class _Certificate(core.Sequence):  # type: ignore[misc]  # as above
    _fields: ClassVar = [("signed", _Signed), ("signature_algorithm", core.Any), ("signature_value", core.Any)]


def distinguished_name(der: bytes) -> str:
    """Return the name of a certificate's subject, such as `CN=alice,OU=Nodes,O=Kelp`.

    Raises:
        CertificateWrong: the bytes are no certificate, or it has no subject, one that is too long, or one that Java reads in another way.
    """
    try:
        relative = _Certificate.load(der, strict=True)["signed"]["subject"]
        size = len(relative.contents)  # before it is taken apart
        if size > _NAME_BYTES_MAX:
            raise CertificateWrong(
                f"the certificate's subject has {size} bytes; issue it with {_NAME_BYTES_MAX} at most"
            )
        name = ",".join("+".join(map(_show, each)) for each in reversed(list(relative)))
    except _MALFORMED as error:
        raise CertificateWrong(f"the certificate cannot be read: {str(error) or type(error).__name__}") from None
    if not name:
        raise CertificateWrong("the certificate has no subject; issue it with one, as in CN=orders")
    return name


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
    except _MALFORMED as error:
        raise CertificateWrong(f"the certificate cannot be read: {str(error) or type(error).__name__}") from None
    raise CertificateWrong("the file holds no certificate")


def _show(attribute: Any) -> str:  # noqa: ANN401 - asn1crypto has no types
    number, value = attribute["type"].dotted, attribute["value"].dump()
    short, parsed = _SHORT.get(number), core.load(value, strict=True)
    kind = parsed.tag if parsed.class_ == 0 and parsed.method == 0 else -1
    if short is None or kind not in (*_TEXTS, _BMP_STRING):
        return f"{number if short is None else short}=#{value.hex()}"
    text = "" if kind == _BMP_STRING else parsed.contents.decode("utf-8", "replace")
    if kind == _BMP_STRING or "\ufffd" in text:
        raise CertificateWrong(f"the certificate has a {short} that is not UTF-8; issue it with a UTF8String")
    if any(unicodedata.category(each) == "Cc" for each in text):
        raise CertificateWrong(f"the certificate has a control character in its {short}; issue it without")
    return f"{short}={''.join(_escape(text))}"


def _escape(text: str) -> Iterator[str]:
    first, last = len(text) - len(text.lstrip(" ")), len(text.rstrip(" "))
    for place, character in enumerate(text):
        is_outer_space = character == " " and not first <= place < last
        yield f"\\{character}" if character in _ESCAPED or is_outer_space else character
