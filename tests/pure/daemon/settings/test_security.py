"""The settings of the listener's security: what is encrypted where, and what needs what."""

from __future__ import annotations

import pytest

from holdfast.daemon.settings.catalogue import catalogue_of
from holdfast.daemon.settings.cluster_wide import why_not_cluster_wide
from holdfast.daemon.settings.file_env_flags import ConfigError
from holdfast.node_settings import SETTINGS, load_settings

SASL = {
    "listener.security.protocol": "SASL_PLAINTEXT",
    "listener.users.file": "users",
    "listener.client.properties.file": "client",
}
TLS = {
    "listener.security.protocol": "SSL",
    "listener.ssl.certificate.location": "node.pem",
    "listener.client.properties.file": "client",
}
ANYWHERE = {"listen": "0.0.0.0:9492", "advertised_listener": "holdfast.example:9492"}


def load(**flags: object) -> None:
    load_settings(flags={"kafka.bootstrap.servers": "kafka:9092"} | flags)


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "localhost:1", "[::1]:1", "127.5.5.5:1"])
def test_on_loopback_nothing_need_be_encrypted(listen: str) -> None:
    load(listen=listen)
    load(listen=listen, **SASL)


@pytest.mark.parametrize("listen", [{"listen": "10.1.2.3:1"}, {"listen": "node.example:1"}, ANYWHERE])
@pytest.mark.parametrize("security", [{}, SASL])
def test_elsewhere_a_node_without_tls_does_not_start_and_is_told_both_ways_out(
    listen: dict[str, str], security: dict[str, str]
) -> None:
    with pytest.raises(ConfigError) as refused:
        load(**listen, **security)
    [problem] = refused.value.problems
    assert "set it to SASL_SSL or SSL and give the node a certificate" in problem
    assert "listener.insecure=true (--insecure)" in problem
    load(**listen, **security, **{"listener.insecure": "true"})
    load(**listen, **TLS)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (TLS | {"listener.ssl.certificate.location": ""}, "SSL, which needs listener.ssl.certificate.location"),
        (TLS | {"ssl.client.auth": "required"}, "ssl.client.auth is required, which needs listener.ssl.ca.location"),
        (TLS | {"listener.client.properties.file": ""}, "set listener.client.properties.file"),
        (SASL | {"listener.users.file": ""}, "SASL_PLAINTEXT, which needs listener.users.file"),
        (
            SASL | {"sasl.enabled.mechanisms": "PLAIN,GSSAPI"},
            "sasl.enabled.mechanisms is GSSAPI; there are PLAIN, SCRAM",
        ),
        (SASL | {"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms is empty"),
        ({"connection.failed.authentication.delay.ms": "10000"}, "must be below listener.login.timeout.ms"),
        ({"listener.security.protocol": "TLS"}, "it must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ],
)
def test_what_is_missing_is_named(flags: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(**flags)


def test_the_brokers_and_the_listener_do_not_share_a_setting() -> None:
    settings = load_settings(
        flags={"kafka.bootstrap.servers": "kafka:9092", "kafka.security.protocol": "SSL", "kafka.ssl.ca.location": "x"}
    ).settings
    assert settings.security.security_protocol == "PLAINTEXT"
    assert settings.kafka.properties["security.protocol"] == "SSL"
    assert settings.kafka.properties["ssl.ca.location"] == "x"


def test_what_holds_when_a_node_begins_to_listen_is_its_own() -> None:
    known = catalogue_of(SETTINGS).known
    names = [name for name, each in known.items() if each.component == "security"]
    assert len(names) >= 14
    assert [name for name in names if not why_not_cluster_wide(name, known)] == []
