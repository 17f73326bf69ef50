"""What a node with TLS and logins is set to in a test: its files, and those of its clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast.daemon.login.credentials import SECRET_BYTES, KeptUsers, derive
from holdfast.daemon.login.users_file import write_kept
from tests.world.identity.certificates import Authority, Pair
from tests.world.identity.mechanisms import SCRAM

ITERATIONS = 4_096


class SecuredFiles:
    """Certificates, users and client properties of one node, in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.certificate = directory / "node-shown.pem"
        self.users = directory / "users"
        self.client_properties = directory / "client.properties"
        self.show(self.authority.sign("node", "/CN=node"))
        self.let_in(admin="open sesame")
        self.client_properties.write_text(self.properties_of("admin", "open sesame"))

    @property
    def settings(self) -> Mapping[str, object]:
        """The settings of a node with SASL_SSL, whose user `admin` may do everything."""
        return {
            "listener.security.protocol": "SASL_SSL",
            "listener.ssl.certificate.location": self.certificate,
            "listener.ssl.ca.location": self.authority.certificate,
            "listener.users.file": self.users,
            "listener.client.properties.file": self.client_properties,
            "super.users": "User:admin",
        }

    def show(self, pair: Pair) -> None:
        """Put a certificate and its key in the place of the node's, in one step."""
        draft = self.directory / "draft.pem"
        draft.write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())
        draft.replace(self.certificate)

    def let_in(self, **passwords: str) -> None:
        """Let these users in, and nobody else."""
        credentials = {
            name: {each: derive(each, text, ITERATIONS) for each in SCRAM} for name, text in passwords.items()
        }
        write_kept(self.users, KeptUsers(credentials, bytes(SECRET_BYTES)))

    def properties_of(self, name: str, password: str) -> str:
        """Return the properties of a user for our own clients."""
        return (
            f"# of {name}\nsecurity.protocol=SASL_SSL\nssl.ca.location={self.authority.certificate}\n"
            f"sasl.mechanism=SCRAM-SHA-512\nsasl.username={name}\nsasl.password={password}\n"
        )

    def java_properties_of(self, name: str, password: str, own: Pair) -> str:
        """Return the properties of a user who has a certificate, too, for Kafka's Java client."""
        keys = self.directory / f"{name}-java.pem"
        keys.write_text(own.key.read_text() + own.certificate.read_text())
        return (
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={self.authority.certificate}\n"
            f"ssl.keystore.type=PEM\nssl.keystore.location={keys}\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{name}" password="{password}";\n'
        )
