"""The certificates that the settings name: whether the key is theirs, who has signed them, and how long they are valid.

Each is looked at by a TLS handshake in memory, in which it is shown to somebody who trusts it; nothing leaves this process.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from holdfast.console.doctor.findings import Finding, Subject, right, warning, wrong
from holdfast.daemon.settings.file_env_flags import to_flags
from holdfast.daemon.settings.models import Settings

#: With fewer days left, it is time.
_DAYS_LEFT_MIN: Final = 14
_DAY_S: Final = 24 * 60 * 60
_OF_SSL: Final = ("ssl.certificate.location", "ssl.key.location", "ssl.key.password", "ssl.ca.location")
#: The settings about a certificate, of the connection to Kafka, of the listener and of the HTTP port: those that name it, its key,
#: the key's password (the last has none) and authorities.
_SETTINGS: Final = (
    *(tuple(prefix + name for name in _OF_SSL) for prefix in ("kafka.", "listener.")),
    ("http.tls.certificate.file", "http.tls.key.file", "", "http.tls.client.ca.file"),
)
_ROUNDS_MAX: Final = 10


class CertificateFiles(NamedTuple):
    """A certificate of the node, as settings name it; an empty name is a setting that is not set."""

    #: The setting that names it.
    setting: str
    certificate: str
    #: Empty: it is in the file of the certificate.
    key: str
    password: str
    #: Authorities whose certificates the other side has to show; their file is looked at, too.
    authority: str


async def check_certificates(subject: Subject) -> Sequence[Finding]:
    """Look at each certificate that the settings name."""
    named = find_certificates(subject.settings)
    if not named:
        return [right("none is set")]
    found = await asyncio.gather(*(asyncio.to_thread(judge_certificate, each, time.time()) for each in named))
    return [finding for findings in found for finding in findings]


def find_certificates(settings: Settings) -> list[CertificateFiles]:
    """Return the certificates that settings name, and authorities that stand alone."""
    values = to_flags(settings)
    found = []
    for names in _SETTINGS:
        certificate, key, password, authority = (str(values.get(name) or "") for name in names)
        if certificate or authority:
            setting = names[0] if certificate else names[3]
            found.append(CertificateFiles(setting, certificate, key, password, authority))
    return found


def judge_certificate(files: CertificateFiles, now_s: float) -> Sequence[Finding]:
    """Judge one certificate, and the authorities beside it, at a time of day in s since 1970."""
    findings = []
    if files.authority:
        try:
            ssl.create_default_context(cafile=files.authority)
        except (OSError, ssl.SSLError) as error:
            findings.append(
                wrong(f"{files.authority} cannot be read as authorities ({error})", "name a PEM file of theirs")
            )
    if files.certificate:
        findings += _judge_own(files, now_s)
    elif not findings:
        findings.append(right(f"{files.authority} holds authorities"))
    return findings


def _judge_own(files: CertificateFiles, now_s: float) -> Sequence[Finding]:
    name = files.setting
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # Without a password OpenSSL would ask for one at the terminal.
        shown.load_cert_chain(files.certificate, files.key or None, files.password or "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            remedy = "name the key that was made with it, or have a new certificate signed for this key"
            return [wrong(f"the key of {files.certificate} is another one's ({name})", remedy)]
        return [
            wrong(
                f"{files.certificate} or its key cannot be read ({error.reason or error})",
                f"mend {name}, the key's file or its password",
            )
        ]
    except OSError as error:
        return [
            wrong(
                f"{files.certificate} or its key cannot be read ({error.strerror})",
                f"mend {name} or the rights of the file",
            )
        ]
    try:
        ends_s = _find_end_s(shown, files)
    except ssl.SSLCertVerificationError as error:
        remedy = (
            "have a new one signed, and put it there"
            if "expired" in error.verify_message
            else "have one signed that fits"
        )
        return [wrong(f"{files.certificate} is refused: {error.verify_message} ({name})", remedy)]
    days = (ends_s - now_s) / _DAY_S
    if days < _DAYS_LEFT_MIN:
        return [
            warning(f"{files.certificate} is valid for {days:.0f} days more", "have a new one signed, and put it there")
        ]
    return [right(f"{files.certificate} fits its key, and is valid for {days:.0f} days more")]


def _find_end_s(shown: ssl.SSLContext, files: CertificateFiles) -> float:
    """Return until when a certificate is valid, in s since 1970, by showing it to a server that trusts it.

    Raises:
        SSLCertVerificationError: it has expired, say.
    """
    shown.check_hostname, shown.verify_mode = False, ssl.CERT_NONE
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.certificate, files.key or None, files.password or "")
    server.verify_mode = ssl.CERT_REQUIRED
    # The certificate is trusted by itself here: only the other side checks its issuer.
    server.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    server.load_verify_locations(files.certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = shown.wrap_bio(to_client, to_server)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_ROUNDS_MAX):
        done = [_step(ours), _step(theirs)]
        if all(done):
            break
    found = theirs.getpeercert() or {}
    return ssl.cert_time_to_seconds(str(found["notAfter"]))


def _step(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
