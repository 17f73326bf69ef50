"""Certificates for a test, made by openssl: an authority, what it signs, and subjects of every shape that one may sign."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from asn1crypto import core, parser  # type: ignore[import-untyped]  # it ships no types
from hypothesis import strategies as st

_SEQUENCE: Final = 16
_SET: Final = 17
_BIT_STRING: Final = 3
#: Where a subject stands in a TBSCertificate of version 3. Source: RFC 5280, 4.1.
_SUBJECT_PLACE: Final = 5


class Pair(NamedTuple):
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """An authority, and the directory in which its files are."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._own = self._make(name, "/CN=test authority", "-addext", "keyUsage=keyCertSign")
        self.certificate = self._own.certificate

    def sign(self, name: str, subject: str, *, days: int = 2, host: str = "IP:127.0.0.1,DNS:localhost") -> Pair:
        """Return a new certificate for a subject, such as `/O=Kelp/CN=alice`, in files that begin with `name`."""
        signer = ("-CA", str(self._own.certificate), "-CAkey", str(self._own.key))
        return self._make(name, subject, *signer, "-addext", f"subjectAltName={host}", days=days)

    def sign_subject(self, name: str, subject: bytes) -> Pair:
        """Return a new certificate for a subject in DER, which openssl need not be able to say."""
        pair = self.sign(name, "/CN=template")
        whole = with_subject(ssl.PEM_cert_to_DER_cert(pair.certificate.read_text()), subject)
        signed, algorithm, _ = elements(whole)
        made = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", str(self._own.key)], input=signed, check=True, capture_output=True
        )
        certificate = encode(_SEQUENCE, signed + algorithm + encode(_BIT_STRING, b"\0" + made.stdout))
        pair.certificate.write_text(ssl.DER_cert_to_PEM_cert(certificate))
        return pair

    def _make(self, name: str, subject: str, *arguments: str, days: int = 2) -> Pair:
        pair = Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(pair.key))
        command = ["openssl", "req", "-x509", *new_key, "-days", str(days), "-subj", subject, "-utf8", *arguments]
        subprocess.run([*command, "-out", str(pair.certificate)], check=True, capture_output=True)
        return pair


def with_subject(certificate: bytes, subject: bytes) -> bytes:
    """Return a certificate of version 3 with another subject, both in DER; its signature does not fit any more."""
    signed, *others = elements(certificate)
    parts = elements(signed)
    parts[_SUBJECT_PLACE] = subject
    return encode(_SEQUENCE, encode(_SEQUENCE, b"".join(parts)) + b"".join(others))


def elements(sequence: bytes) -> list[bytes]:
    """Return the elements of a sequence, each with its head."""
    _, _, _, _, content, _ = parser.parse(sequence)
    found = []
    while content:
        size = parser.peek(content)
        found.append(content[:size])
        content = content[size:]
    return found


def encode(tag: int, content: bytes) -> bytes:
    """Return an element of ASN.1's own class in DER; a sequence and a set are constructed."""
    return bytes(parser.emit(0, int(tag in (_SEQUENCE, _SET)), tag, content))


#: Common and unusual attributes: CN, OU, C, DC, UID, an e-mail address, a serial number.
_TYPES = (
    "2.5.4.3",
    "2.5.4.11",
    "2.5.4.6",
    "0.9.2342.19200300.100.1.25",
    "0.9.2342.19200300.100.1.1",
    "1.2.840.113549.1.9.1",
    "2.5.4.5",
)
_UTF8, _BMP, _UNIVERSAL = 12, 30, 28
_OTHERS = (2, 3, 4, 5, 18, 19, 20, 22, 26, 27)

_texts = st.text(max_size=8) | st.text(' ,=+<>#;"\\a\0\r\n', max_size=6)
_values = st.one_of(
    st.builds(lambda text: encode(_UTF8, text.encode()), _texts),
    st.builds(lambda text: encode(_BMP, text.encode("utf-16-be")), _texts),
    st.builds(lambda text: encode(_UNIVERSAL, text.encode("utf-32-be")), _texts),
    st.builds(encode, st.sampled_from((_UTF8, _BMP, *_OTHERS)), st.binary(min_size=1, max_size=8)),
    st.builds(encode, st.just(_SEQUENCE), st.builds(lambda text: encode(_UTF8, text.encode()), _texts)),
)
_attributes = st.builds(
    lambda number, value: encode(_SEQUENCE, core.ObjectIdentifier(number).dump() + value),
    st.sampled_from(_TYPES),
    _values,
)
_relative = st.builds(
    lambda some: encode(_SET, b"".join(sorted(some))), st.lists(_attributes, min_size=1, max_size=3, unique=True)
)


def make_subject(*relative: dict[str, str]) -> bytes:
    """Return a subject of parts that each have a text by each of their types, such as 2.5.4.3."""
    return encode(
        _SEQUENCE,
        b"".join(
            encode(
                _SET,
                b"".join(
                    encode(_SEQUENCE, core.ObjectIdentifier(number).dump() + encode(_UTF8, text.encode()))
                    for number, text in part.items()
                ),
            )
            for part in relative
        ),
    )


#: All of them, the empty one included.
subjects = st.builds(lambda parts: encode(_SEQUENCE, b"".join(parts)), st.lists(_relative, max_size=4))
