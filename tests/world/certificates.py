"""Certificates for a test, made by openssl: an authority, and what it signs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


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

    def _make(self, name: str, subject: str, *arguments: str, days: int = 2) -> Pair:
        pair = Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(pair.key))
        command = ["openssl", "req", "-x509", *new_key, "-days", str(days), "-subj", subject, "-utf8", *arguments]
        subprocess.run([*command, "-out", str(pair.certificate)], check=True, capture_output=True)
        return pair
