"""One Kafka with every way in that Holdfast speaks, and an authorizer that allows nothing by itself."""

from __future__ import annotations

import re
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from holdfast.broker.kafka_broker import BrokerNode
from holdfast.broker.properties import HOST, NodePorts, choose_ports, new_kafka_uuid, node_properties
from tests.kafka_acls import Acl
from tests.real.quick_java import QUICK_KAFKA
from tests.real.secured.certificates import Authority, Signed
from tests.real.secured.tokens import AUDIENCE, TokenEndpoint, write_key_set
from tests.real.shared_kafka import PATIENT_BROKER
from tests.waiting import PATIENCE_S, block_until

#: Who the node is to the broker, by whichever way it comes in, and its password and secret.
USER: Final = "node"
PASSWORD: Final = 'a "pass\\word", with = and ; in it'
#: A TLS connection that was closed waits for the broker's goodbye, and the loop of a test is over sooner.
UNCLOSED: Final = (
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
)
_ASK_TIMEOUT_S: Final = 1.0
#: How long a session lasts on the listener that has clients authenticate again.
SESSION_MS: Final = 1_000

_LOGIN: Final = {
    "scram-sha-256": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "scram-sha-512": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "plain": 'org.apache.kafka.common.security.plain.PlainLoginModule required user_plain="plain-secret";',
    "oauthbearer": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
}
#: The files and endpoints that a broker may take keys from, since Kafka 4.0.
_ALLOWED: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_JWT: Final = "org.apache.kafka.common.security.oauthbearer"


class SecuredKafka(NamedTuple):
    """A broker that runs, and what its clients need."""

    #: Where everybody is the super user.
    open: str
    #: With a certificate.
    mtls: str
    #: SASL over TLS.
    sasl: str
    #: The same, where a session is over soon.
    short: str
    #: SASL without TLS.
    bare: str
    authority: Authority
    #: Of `USER`.
    client: Signed
    tokens: TokenEndpoint
    admin: AdminClient

    def by_certificate(self) -> dict[str, str]:
        """Return the properties of a client with a certificate."""
        return {
            "bootstrap.servers": self.mtls,
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.authority.certificate),
            "ssl.certificate.location": str(self.client.certificate),
            "ssl.key.location": str(self.client.key),
        }

    def by_password(
        self, mechanism: str = "SCRAM-SHA-512", user: str = USER, password: str = PASSWORD
    ) -> dict[str, str]:
        """Return the properties of a client with a password."""
        return self._by_sasl(mechanism) | {"sasl.username": user, "sasl.password": password}

    def by_bare_password(self, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
        """Return the properties of a client with a password, and without TLS."""
        others = {name: value for name, value in self.by_password(mechanism).items() if not name.startswith("ssl.")}
        return others | {"bootstrap.servers": self.bare, "security.protocol": "sasl_plaintext"}

    def by_token(self, secret: str = PASSWORD) -> dict[str, str]:
        """Return the properties of a client with tokens of the endpoint."""
        return self._by_sasl("OAUTHBEARER") | {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": USER,
            "sasl.oauthbearer.client.secret": secret,
            "sasl.oauthbearer.token.endpoint.url": self.tokens.url,
            "https.ca.location": str(self.authority.certificate),
        }

    def by_token_file(self, token: Path) -> dict[str, str]:
        """Return the properties of a client with the tokens that somebody writes into a file."""
        return self._by_sasl("OAUTHBEARER") | {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        }

    def _by_sasl(self, mechanism: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.sasl,
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.authority.certificate),
            "sasl.mechanism": mechanism,
        }

    def set_password(self, password: str, user: str = USER) -> None:
        """Give a user a password, for both mechanisms of SCRAM, and wait until the broker goes by it."""
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            changed = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4_096), password.encode())
            for done in self.admin.alter_user_scram_credentials([changed]).values():
                done.result(PATIENCE_S)
            login = {
                "sasl.mechanism": mechanism.name.replace("_", "-"),
                "sasl.username": user,
                "sasl.password": password,
            }
            block_until(partial(_lets_in, self.by_bare_password() | login), "a password that was set")

    def allow(self, acls: Iterable[Acl], user: str = USER) -> None:
        """Allow a user what the ACLs say, and wait until the broker goes by it."""
        for fields in (_fields(acl, user) for acl in acls):
            self.admin.create_acls([binding := AclBinding(*fields)])[binding].result(PATIENCE_S)
            block_until(lambda fields=fields: self._has(fields), "an ACL that was created")  # type: ignore[misc]

    def forbid(self, acls: Iterable[Acl], user: str = USER) -> None:
        """Take from a user what the ACLs allow, and wait until the broker goes by it."""
        for fields in (_fields(acl, user) for acl in acls):
            which = AclBindingFilter(*fields)
            assert self.admin.delete_acls([which])[which].result(PATIENCE_S), f"there is no ACL {fields}"
            block_until(lambda fields=fields: not self._has(fields), "the end of an ACL")  # type: ignore[misc]

    def _has(self, fields: tuple[Any, ...]) -> bool:
        return bool(self.admin.describe_acls(AclBindingFilter(*fields)).result(PATIENCE_S))


def _lets_in(properties: dict[str, str]) -> bool:
    """Tell whether the broker answers a client with these properties."""
    try:
        return bool(AdminClient({**properties, "log_level": 0}).list_topics(timeout=_ASK_TIMEOUT_S).brokers)
    except KafkaException:
        return False


def _fields(acl: Acl, user: str) -> tuple[Any, ...]:
    operation = AclOperation[re.sub("(?<=[a-z])(?=[A-Z])", "_", acl.operation).upper()]
    kind = ResourceType[acl.kind.upper()]
    return kind, acl.name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW


@contextmanager
def secured_kafka() -> Iterator[SecuredKafka]:
    """Give a broker; it and its files are gone at the end."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-secured-"))
    authority = Authority(directory, "authority")
    server = authority.sign("broker", f"IP:{HOST}")
    client = authority.sign(USER)
    keys = write_key_set(directory)
    own, other, third = choose_ports(3)
    mtls, sasl, short, bare = other.broker, other.controller, third.broker, third.controller
    node = BrokerNode(1, directory / "node-1")
    properties = _properties(node, own, authority, server, keys)
    properties["listeners"] += f",MTLS://{HOST}:{mtls},SASL://{HOST}:{sasl},SHORT://{HOST}:{short},BARE://{HOST}:{bare}"
    node.format(new_kafka_uuid())
    node.launch(
        properties,
        ["-Xmx512m", f"-D{_ALLOWED}={keys.as_uri()}", *QUICK_KAFKA],
        outlives_us=False,
    )
    try:
        ports = (own.broker, mtls, sasl, short, bare)
        block_until(lambda: node.pid() is None or all(map(_accepts, ports)), "the broker listens")
        assert node.pid() is not None, node.failure_line()
        with TokenEndpoint(server, {USER: PASSWORD}) as tokens:
            admin = AdminClient({"bootstrap.servers": f"{HOST}:{own.broker}", "log_level": 0})
            yield SecuredKafka(
                f"{HOST}:{own.broker}",
                f"{HOST}:{mtls}",
                f"{HOST}:{sasl}",
                f"{HOST}:{short}",
                f"{HOST}:{bare}",
                authority,
                client,
                tokens,
                admin,
            )
    finally:
        node.kill()
        shutil.rmtree(directory)


def _properties(node: BrokerNode, ports: NodePorts, authority: Authority, server: Signed, keys: Path) -> dict[str, str]:
    store = server.certificate.with_suffix(".store.pem")
    store.write_text(server.key.read_text() + server.certificate.read_text())
    secured = {
        **PATIENT_BROKER,
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,MTLS:SSL,SASL:SASL_SSL,SHORT:SASL_SSL,BARE:SASL_PLAINTEXT"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": "User:ANONYMOUS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.mtls.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/,DEFAULT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
    }
    for name in ("sasl", "short", "bare"):
        secured |= {f"listener.name.{name}.{mechanism}.sasl.jaas.config": login for mechanism, login in _LOGIN.items()}
        secured[f"listener.name.{name}.oauthbearer.sasl.server.callback.handler.class"] = (
            f"{_JWT}.OAuthBearerValidatorCallbackHandler"
        )
    return node_properties(1, [ports], node.data_dir, secured)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True
