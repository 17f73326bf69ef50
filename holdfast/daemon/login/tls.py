"""Certificate, key and authority of a port, from their files; TLS 1.2 or newer.

A new certificate is a new context: connections that are open keep the one they came with.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.login.certificates import CertificateWrong, valid_until
from holdfast.metrics.registry import Registry

_log = structlog.get_logger(__name__)

_DAY_S: Final = 86_400
#: With fewer days left to a certificate there is a warning a day; an alert may begin earlier by the metric.
_DAYS_LEFT_MIN: Final = 14


class TlsFilesWrong(Exception):
    """The files of a port's TLS cannot be used; the text names them."""


class NamedFile(NamedTuple):
    """A file, and the setting that names it."""

    setting: str
    #: Empty: there is none.
    path: str

    def __str__(self) -> str:
        return f"{self.setting}={self.path}"


class TlsFiles(NamedTuple):
    """The files of a port's TLS, and what is asked of its clients."""

    certificate: NamedFile
    #: Without one it is in the file of the certificate.
    key: NamedFile
    key_password: str
    #: Who signs the certificates of clients.
    authority: NamedFile
    client_auth: ssl.VerifyMode


class Tls(NamedTuple):
    """What a port with TLS shows its clients."""

    context: ssl.SSLContext
    #: When its certificate ends, in UTC.
    valid_until: datetime


class FollowedTls:
    """The TLS of one port, whose files are read again when they change, and whose certificate is not to end unseen."""

    def __init__(self, port: str, files: TlsFiles, watch: FileWatch, registry: Registry) -> None:
        """Read the files, and read them again when `watch` says so.

        Args:
            port: `listener` or `http`, for the metric.
            files: what the settings name.
            watch: says when they are read again.
            registry: of the metric.

        Raises:
            TlsFilesWrong: one cannot be read, or they do not fit together.
        """
        self._files = files
        #: Until the certificate is looked at again.
        self._warning: asyncio.TimerHandle | None = None
        named = [Path(each.path) for each in (files.certificate, files.key, files.authority) if each.path]
        watch.follow(files.certificate.setting, lambda: named, self._reload)
        self._tls = self._load()
        show_certificate(registry, port, lambda: _days_until(self._tls.valid_until))

    @property
    def context(self) -> ssl.SSLContext:
        """What connections from now on are encrypted with."""
        return self._tls.context

    def stop(self) -> None:
        """Warn no more."""
        if self._warning is not None:
            self._warning.cancel()

    def _reload(self) -> bool:
        try:
            self._tls = self._load()
        except TlsFilesWrong as error:
            _log.error("certificate_refused", why=str(error))
            return False
        return True

    def _load(self) -> Tls:
        tls = load_tls(self._files)
        _log.info("certificate_loaded", file=self._files.certificate.path, ends=tls.valid_until.isoformat())
        self._warn_of_end(tls.valid_until)
        return tls

    def _warn_of_end(self, ends: datetime) -> None:
        """Write that the certificate ends soon, if it does, and look again in a day."""
        self.stop()
        self._warning = asyncio.get_running_loop().call_later(_DAY_S, self._warn_of_end, ends)
        if (days_left := _days_until(ends)) < _DAYS_LEFT_MIN:
            _log.warning("certificate_expiring", file=self._files.certificate.path, days_left=round(days_left, 1))


def show_certificate(registry: Registry, port: str, days_left: Callable[[], float]) -> None:
    """Show how long the certificate of a port holds."""
    registry.gauge(
        "certificate_days_left",
        "Days until the certificate of a port of the node (listener, http) ends; below 0 it has ended, and no client comes in.",
        lambda: round(days_left(), 2),
        port=port,
    )


def load_tls(files: TlsFiles) -> Tls:
    """Return what the files hold.

    Raises:
        TlsFilesWrong: one cannot be read, or they do not fit together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A function, because OpenSSL would prompt for a password that is missing.
        context.load_cert_chain(files.certificate.path, files.key.path or None, lambda: files.key_password)
        ends = valid_until(Path(files.certificate.path).read_bytes())
    except (OSError, CertificateWrong, ValueError) as error:
        named = f"{files.certificate}" + (f" and {files.key}" if files.key.path else "")
        raise TlsFilesWrong(f"The files of {named} cannot be used ({_text(error)}).") from None
    try:
        if files.authority.path:
            context.load_verify_locations(files.authority.path)
    except (OSError, ValueError) as error:
        raise TlsFilesWrong(f"The file of {files.authority} cannot be used ({_text(error)}).") from None
    context.verify_mode = files.client_auth
    return Tls(context, ends)


def _days_until(moment: datetime) -> float:
    return (moment - datetime.now(UTC)).total_seconds() / _DAY_S


def _text(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
