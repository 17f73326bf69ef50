"""Whom a certificate names, as Java writes it, and until when it is valid; what cannot be used is named."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.daemon.login.certificates import CertificateWrong, distinguished_name, valid_until
from holdfast.daemon.login.tls import TlsFilesWrong, load_tls
from holdfast.daemon.server.entrance import tls_files
from holdfast.daemon.settings.components.listener import SecuritySettings
from tests.world.certificates import Authority, Pair


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def node(authority: Authority) -> Pair:
    return authority.sign("node", "/CN=localhost", days=30)


def security(**given: Any) -> SecuritySettings:
    values: dict[str, Any] = {name: str(value) for name, value in given.items()}
    return SecuritySettings(security_protocol="SSL", client_properties_file="x", **values)


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("/C=DE/O=Kelp/OU=Nodes/CN=alice", "CN=alice,OU=Nodes,O=Kelp,C=DE"),
        (r"/O=Kelp, \"Inc\"/CN= a=b;c ", r"CN=\ a\=b\;c\ ,O=Kelp\, \"Inc\""),
        (r"/DC=org/UID=7/CN=Zoë\+", "CN=Zoë\\+,UID=7,DC=org"),
        ("/CN=alice/emailAddress=a@b", "1.2.840.113549.1.9.1=#1603614062,CN=alice"),
    ],
)
def test_the_name_in_a_certificate_is_written_as_java_does(authority: Authority, subject: str, expected: str) -> None:
    pair = authority.sign("named", subject)
    assert distinguished_name(ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())) == expected


def test_a_certificate_ends_when_it_says(node: Pair) -> None:
    left = valid_until(node.certificate.read_bytes()) - datetime.now(UTC)
    assert timedelta(days=29) < left < timedelta(days=30, minutes=1)


@pytest.mark.parametrize("data", [b"", b"\x30", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_bytes_that_are_no_certificate_are_refused(data: bytes) -> None:
    with pytest.raises(CertificateWrong):
        valid_until(data)
    with pytest.raises(CertificateWrong):
        distinguished_name(data)


def test_tls_is_made_from_its_files(authority: Authority, node: Pair) -> None:
    files = {"ssl_certificate_location": node.certificate, "ssl_key_location": node.key}
    tls = load_tls(tls_files(security(**files)))
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert tls.context.verify_mode is ssl.CERT_NONE
    for auth, mode in (("requested", ssl.CERT_OPTIONAL), ("required", ssl.CERT_REQUIRED)):
        asked = security(**files, ssl_ca_location=authority.certificate, ssl_client_auth=auth)
        assert load_tls(tls_files(asked)).context.verify_mode is mode


def test_files_that_do_not_fit_are_named(authority: Authority, node: Pair, tmp_path: Path) -> None:
    other = authority.sign("other", "/CN=other")
    nothing = tmp_path / "nothing.pem"
    for given, named in (
        ({"ssl_certificate_location": nothing}, rf"listener\.ssl\.certificate\.location={nothing}.*No such file"),
        ({"ssl_certificate_location": node.certificate, "ssl_key_location": other.key}, "ssl.key.location=.*MISMATCH"),
        (
            {
                "ssl_certificate_location": node.certificate,
                "ssl_key_location": node.key,
                "ssl_ca_location": nothing,
            },
            rf"listener\.ssl\.ca\.location={nothing}.*No such file",
        ),
    ):
        with pytest.raises(TlsFilesWrong, match=named):
            load_tls(tls_files(security(**given)))
