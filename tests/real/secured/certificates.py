"""Certificates of a test, made by openssl: an authority, whom it signed, and one that nobody knows."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final, NamedTuple

_EC: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_DAYS: Final = ("-days", "2")


class Signed(NamedTuple):
    """A certificate and its key, in PEM."""

    certificate: Path
    #: PKCS #8.
    key: Path


class Authority:
    """Signs certificates."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = directory / f"{name}.key"
        #: What clients trust.
        self.certificate = directory / f"{name}.pem"
        _openssl("req", "-x509", *_EC, *_DAYS, "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.certificate)

    def sign(self, name: str, alternative: str = "") -> Signed:
        """Return a certificate for a name.

        Args:
            name: its common name, by which a broker knows a client.
            alternative: what else it names, by openssl's words: `IP:127.0.0.1`.
        """
        signed = Signed(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        also = ("-addext", f"subjectAltName={alternative}") if alternative else ()
        by = ("-CA", self.certificate, "-CAkey", self._key)
        _openssl(
            *("req", "-x509", *_EC, *_DAYS, "-subj", f"/CN={name}", *also, *by),
            *("-addext", "basicConstraints=critical,CA:FALSE", "-keyout", signed.key, "-out", signed.certificate),
        )
        return signed


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
