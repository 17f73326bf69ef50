"""The same security for librdkafka and for Kafka's Java client."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.kafka.errors import PropertyRefused
from holdfast.kafka.java_properties import to_java


def test_without_security_there_is_nothing_to_say() -> None:
    assert to_java({"bootstrap.servers": "k:1", "fetch.max.bytes": "5"}) == {"security.protocol": "PLAINTEXT"}


def test_a_password_is_quoted_whatever_it_holds() -> None:
    properties = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "holdfast",
        "sasl.password": 'op"en \\ses;ame',
    }
    assert to_java(properties) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="holdfast" password="op\\"en \\\\ses;ame";',
    }


@pytest.mark.parametrize(
    ("character", "written"), [("\n", "\\n"), ("\r", "\\r"), ("\\", "\\\\"), ('"', '\\"'), ("\t", "\t")]
)
def test_a_character_that_ends_a_quoted_text_for_java_is_escaped(character: str, written: str) -> None:
    """As the carriage return of a secret that was read from a file of another system."""
    for place in ("username", "password"):
        sasl = {"sasl.username": "u", "sasl.password": "p", f"sasl.{place}": f"a{character}b"}
        java = to_java({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **sasl})
        assert f'{place}="a{written}b"' in java["sasl.jaas.config"]


def test_certificates_go_along_as_text(tmp_path: Path) -> None:
    for name in ("authority", "certificate", "key"):
        (tmp_path / name).write_text(f"-- {name} --")
    properties = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(tmp_path / "authority"),
        "ssl.certificate.location": str(tmp_path / "certificate"),
        "ssl.key.location": str(tmp_path / "key"),
        "ssl.key.password": "open sesame",
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert to_java(properties) == {
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "-- authority --",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "-- certificate --",
        "ssl.keystore.key": "-- key --",
        "ssl.key.password": "open sesame",
    }
    del properties["ssl.key.location"]
    assert to_java(properties)["ssl.keystore.key"] == "-- certificate --"


OIDC = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "holdfast",
    "sasl.oauthbearer.client.secret": 'se"same',
    "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
}
PACKAGE = "org.apache.kafka.common.security.oauthbearer"


def test_a_token_endpoint_goes_along_with_its_authority() -> None:
    more = {
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "pool=b",
        "https.ca.pem": "-- one --\n-- two --\n",
    }
    assert to_java(OIDC | more) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{PACKAGE}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
        "sasl.jaas.config": f'{PACKAGE}.OAuthBearerLoginModule required clientId="holdfast" clientSecret="se\\"same" scope="kafka" '
        'extension_pool="b" ssl.truststore.type="PEM" ssl.truststore.certificates="-- one --\\n-- two --\\n";',
    }


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"security.protocol": "SASL_SSL"}, r"kafka.sasl.mechanism is not set; it must be PLAIN, "),
        ({"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}, "cannot be said to Spark"),
        (
            OIDC | {"sasl.oauthbearer.token.endpoint.url": "file:///token"},
            "is the file /token, which cannot be said to Spark",
        ),
        ({"security.protocol": "SSL", "ssl.ca.location": "/no/such/file"}, "ssl.ca.location names cannot be used"),
    ],
)
def test_what_cannot_be_said_is_refused(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(PropertyRefused, match=problem):
        to_java(properties)
