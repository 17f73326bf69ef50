"""The same security as Kafka's Java client takes it, for Spark's source and sink.

Certificates and keys go along as text, because the files are on the node's machine and not on Spark's.
What is not about security stays behind: the two clients have little else in common.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdfast.kafka.errors import PropertyRefused
from holdfast.kafka.oauth.sources import MECHANISM, Bearer, TokenFile
from holdfast.kafka.security import Sasl, Tls, parse_security

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
#: Kafka's package of what logs in by tokens.
_BEARER: Final = "org.apache.kafka.common.security.oauthbearer"


def to_java(properties: Mapping[str, str]) -> dict[str, str]:
    """Return what the Java client needs to connect as librdkafka does with these properties.

    Raises:
        PropertyRefused: something cannot be said to it, or a file cannot be read.
    """
    security = parse_security(properties)
    java = {"security.protocol": security.protocol}
    if isinstance(security.sasl, Sasl):
        java |= _render_sasl(security.sasl)
    elif security.sasl is not None:
        java |= _render_bearer(security.sasl)
    if security.tls is not None:
        java |= _render_tls(security.tls)
    return java


def _render_sasl(sasl: Sasl) -> dict[str, str]:
    module, name, password = _LOGIN_MODULES[sasl.mechanism], _quoted(sasl.username), _quoted(sasl.password)
    login = f"{module} required username={name} password={password};"
    return {"sasl.mechanism": sasl.mechanism, "sasl.jaas.config": login}


def _render_bearer(bearer: Bearer) -> dict[str, str]:
    source = bearer.source
    if isinstance(source, TokenFile):
        raise PropertyRefused(
            f"kafka.sasl.oauthbearer.token.endpoint.url is the file {source.path}, which cannot be said to Spark, for its client reads "
            "a token once; let the job log in at a token endpoint, or by another mechanism."
        )
    options = {"clientId": source.client_id, "clientSecret": source.client_secret}
    if source.scope:
        options["scope"] = source.scope
    options |= {f"extension_{name}": value for name, value in bearer.extensions.items()}
    if authority := source.authority_pem or _read(source.authority_file, "https.ca.location"):
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    login = " ".join(f"{name}={_quoted(value)}" for name, value in options.items())
    return {
        "sasl.mechanism": MECHANISM,
        "sasl.login.callback.handler.class": f"{_BEARER}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": source.url,
        "sasl.jaas.config": f"{_BEARER}.OAuthBearerLoginModule required {login};",
    }


def _render_tls(tls: Tls) -> dict[str, str]:
    if not tls.is_verified:
        raise PropertyRefused(
            "kafka.enable.ssl.certificate.verification=false cannot be said to Spark; name the authority in kafka.ssl.ca.location."
        )
    java = {"ssl.endpoint.identification.algorithm": "https" if tls.is_host_verified else ""}
    authority = tls.authority_pem or _read(tls.authority_file, "ssl.ca.location")
    if authority:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    certificate = _read(tls.certificate_file, "ssl.certificate.location")
    if certificate:
        # Without a file for the key, both are in one, as librdkafka has it too.
        key = _read(tls.key_file, "ssl.key.location") or certificate
        java |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": certificate,
            "ssl.keystore.key": key,
        }
        if tls.key_password:
            java["ssl.key.password"] = tls.key_password
    return java


def _read(path: str | None, name: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise PropertyRefused(f"The file that kafka.{name} names cannot be used: {error}.") from None


#: What ends a quoted text for Java's parser, or begins an escape there, and how it is written.
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'
