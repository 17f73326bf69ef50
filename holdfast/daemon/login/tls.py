"""Certificate, key and authority of a listener, from their files; TLS 1.2 or newer.

A new certificate is a new context: connections that are open keep the one they came with.
"""

from __future__ import annotations

import ssl
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from holdfast.daemon.login.certificates import CertificateWrong, valid_until
from holdfast.daemon.settings.components.listener import SecuritySettings

_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsFilesWrong(Exception):
    """The files of a listener's TLS cannot be used; the text names them."""


class Tls(NamedTuple):
    """What a listener with TLS shows its clients."""

    context: ssl.SSLContext
    #: When its certificate ends, in UTC.
    valid_until: datetime


def load_tls(settings: SecuritySettings) -> Tls:
    """Return what the files of the settings hold.

    Raises:
        TlsFilesWrong: one cannot be read, or they do not fit together.
    """
    certificate, key = settings.ssl_certificate_location, settings.ssl_key_location or None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A function, because OpenSSL would prompt for a password that is missing.
        context.load_cert_chain(certificate, key, lambda: settings.ssl_key_password)
        ends = valid_until(Path(certificate).read_bytes())
    except (OSError, CertificateWrong, ValueError) as error:
        files = f"listener.ssl.certificate.location={certificate}" + (
            f" and listener.ssl.key.location={key}" if key else ""
        )
        raise TlsFilesWrong(f"The files of {files} cannot be used ({_text(error)}).") from None
    try:
        if settings.ssl_ca_location:
            context.load_verify_locations(settings.ssl_ca_location)
    except (OSError, ValueError) as error:
        raise TlsFilesWrong(
            f"The file of listener.ssl.ca.location={settings.ssl_ca_location} cannot be used ({_text(error)})."
        ) from None
    context.verify_mode = _CLIENT_AUTH[settings.ssl_client_auth]
    return Tls(context, ends)


def _text(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
