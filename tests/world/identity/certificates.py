"""Certificates for a test, made by openssl: an authority, and what it signs."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from asn1crypto import parser  # type: ignore[import-untyped]  # it ships no types

_SEQUENCE: Final = 16
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
    return bytes(parser.emit(0, int(tag in (_SEQUENCE, 17)), tag, content))
