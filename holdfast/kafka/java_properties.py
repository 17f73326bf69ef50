"""The properties of librdkafka about security, as Kafka's Java client takes them, for Spark's source and sink.

Certificates and keys go along as text, because the files are on the node's machine and not on Spark's.
What is not about security stays behind: the two clients have little else in common.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdfast.kafka.errors import PropertyRefused

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def to_java(properties: Mapping[str, str]) -> dict[str, str]:
    """Return what the Java client needs to connect as librdkafka does.

    Raises:
        PropertyRefused: something cannot be said to it, or a file cannot be read.
    """
    protocol = properties.get("security.protocol", "plaintext").upper()
    java = {"security.protocol": protocol}
    if protocol.startswith("SASL_"):
        java |= _sasl(properties)
    if protocol.endswith("SSL"):
        java |= _ssl(properties)
    return java


def _sasl(properties: Mapping[str, str]) -> dict[str, str]:
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI"
    if mechanism not in _LOGIN_MODULES:
        raise PropertyRefused(
            f"kafka.sasl.mechanism is {mechanism!r}; for Spark it must be {', '.join(_LOGIN_MODULES)}."
        )
    name, password = (_quoted(properties.get(f"sasl.{part}", "")) for part in ("username", "password"))
    login = f"{_LOGIN_MODULES[mechanism]} required username={name} password={password};"
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": login}


def _ssl(properties: Mapping[str, str]) -> dict[str, str]:
    if properties.get("enable.ssl.certificate.verification", "true") != "true":
        raise PropertyRefused(
            "kafka.enable.ssl.certificate.verification=false cannot be said to Spark; name the authority in kafka.ssl.ca.location."
        )
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https")
    java = {"ssl.endpoint.identification.algorithm": "" if algorithm == "none" else algorithm}
    authority = properties.get("ssl.ca.pem") or _read(properties, "ssl.ca.location")
    if authority:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    certificate = _read(properties, "ssl.certificate.location")
    if certificate:
        # Without a file for the key, both are in one, as librdkafka has it too.
        key = _read(properties, "ssl.key.location") or certificate
        java |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": certificate,
            "ssl.keystore.key": key,
        }
        if password := properties.get("ssl.key.password"):
            java["ssl.key.password"] = password
    return java


def _read(properties: Mapping[str, str], name: str) -> str:
    path = properties.get(name)
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise PropertyRefused(f"The file that kafka.{name} names cannot be used: {error}.") from None


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
