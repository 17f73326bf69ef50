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


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"security.protocol": "SASL_SSL"}, r"kafka.sasl.mechanism is not set; it must be PLAIN, "),
        ({"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}, "cannot be said to Spark"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/no/such/file"}, "ssl.ca.location names cannot be used"),
    ],
)
def test_what_cannot_be_said_is_refused(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(PropertyRefused, match=problem):
        to_java(properties)
