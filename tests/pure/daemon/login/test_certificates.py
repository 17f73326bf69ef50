"""Whom a certificate names, as Java writes it, and until when it is valid; what cannot be used is named."""

from __future__ import annotations

import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.daemon.login import certificates
from holdfast.daemon.login.certificates import CertificateWrong, distinguished_name, valid_until
from holdfast.daemon.login.tls import TlsFilesWrong, load_tls
from holdfast.daemon.server.security import tls_files
from holdfast.daemon.settings.components.listener import SecuritySettings
from tests.world.identity.certificates import Authority, Pair, elements, encode, with_subject
from tests.world.identity.subjects import make_subject, subjects


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def node(authority: Authority) -> Pair:
    return authority.sign("node", "/CN=localhost", days=30)


@pytest.fixture(scope="module")
def der(node: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(node.certificate.read_text())


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


CN, OU, E_MAIL = "2.5.4.3", "2.5.4.11", "1.2.840.113549.1.9.1"
SEQUENCE, BMP_STRING = 16, 30


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (make_subject({CN: "alice", OU: "Nodes"}, {OU: "Kelp"}), "OU=Kelp,CN=alice+OU=Nodes"),
        (make_subject({CN: ""}), "CN="),
        (make_subject({CN: "Zoë"}, {"2.5.4.5": "7"}), "2.5.4.5=#0c0137,CN=Zoë"),
        # An e-mail address that is no IA5String keeps its bytes, in a subject of 128 bytes, too.
        (make_subject(*[{CN: "", E_MAIL: "000000"}] * 4), ",".join([f"CN=+{E_MAIL}=#0c06303030303030"] * 4)),
    ],
)
def test_a_name_of_an_unusual_shape_is_written_as_java_does(der: bytes, subject: bytes, expected: str) -> None:
    assert distinguished_name(with_subject(der, subject)) == expected


def test_a_certificate_of_version_1_has_a_name_too(der: bytes) -> None:
    signed, *others = elements(with_subject(der, make_subject({CN: "alice"})))
    without_version_and_extensions = encode(SEQUENCE, b"".join(elements(signed)[1:7]))
    first = encode(SEQUENCE, without_version_and_extensions + b"".join(others))
    assert distinguished_name(first) == "CN=alice"


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        (make_subject(), "the certificate has no subject"),
        (make_subject({CN: "alice\0.example"}), "the certificate has a control character in its CN"),
        (
            make_subject({CN: "alice"}).replace(encode(12, b"alice"), encode(BMP_STRING, b"\0a\0b\0")),
            "the certificate has a CN that is not UTF-8",
        ),
    ],
)
def test_a_name_that_would_be_none_or_another_one_is_refused(der: bytes, subject: bytes, why: str) -> None:
    with pytest.raises(CertificateWrong, match=why):
        distinguished_name(with_subject(der, subject))


@pytest.mark.parametrize(
    "subject",
    [make_subject({CN: "a" * 2_040}), make_subject({CN: "alice"}, *[{OU: "x"}] * 1_000)],
    ids=["long", "many"],
)
def test_a_name_that_is_too_long_is_refused_before_it_is_taken_apart(
    der: bytes, subject: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand attributes take 50 ms of the event loop."""
    monkeypatch.setattr(certificates, "_show", lambda attribute: pytest.fail(f"{attribute} was read"))
    with pytest.raises(CertificateWrong, match="issue it with 2048 at most"):
        distinguished_name(with_subject(der, subject))


@given(subjects)
def test_a_subject_of_any_shape_has_a_printed_name_or_is_refused_in_one_line(der: bytes, subject: bytes) -> None:
    try:
        name = distinguished_name(with_subject(der, subject))
    except CertificateWrong as error:
        name = str(error)
    assert name
    assert not any(each in name for each in "\0\r\n")


@given(st.data())
def test_damaged_bytes_are_refused_or_read_and_raise_nothing_else(der: bytes, data: st.DataObject) -> None:
    damaged = bytearray(der)
    for place in data.draw(st.lists(st.integers(0, len(der) - 1), min_size=1, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    for read in (distinguished_name, lambda bad: valid_until(ssl.DER_cert_to_PEM_cert(bad).encode())):
        with suppress(CertificateWrong):
            read(bytes(damaged[: data.draw(st.integers(1, len(der)))]))


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
    for files, named in (
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
            load_tls(tls_files(security(**files)))
