"""A node with TLS, logins and access rules, its files, and how a client gets in."""

from __future__ import annotations

import socket
import ssl
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.attacks.caller import MECHANISM
from benchmarks.client import CLIENT_ID, OPENINGS, BenchmarkError
from benchmarks.contenders import HoldfastNode
from holdfast.broker import EmbeddedKafka
from holdfast.daemon.access.acl import ANY, Acl, Operation, Permission, ResourceType
from holdfast.daemon.access.acl_file import line_of, write_lines
from holdfast.daemon.login.credentials import KeptUsers, derive
from holdfast.daemon.login.users_file import write_kept
from holdfast.kafka.protocol.frames import encode_request
from holdfast.kafka.protocol.sasl_calls import (
    AUTHENTICATE_VERSION_MAX,
    HANDSHAKE_VERSION,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    decode_authenticate_answer,
    encode_authenticate,
    encode_handshake,
)
from holdfast.kafka.protocol.scram import KEY_BYTES, ClientSide

USER: Final = "generator"
ADMIN: Final = "admin"
#: Who may log in, and do nothing.
NOBODY: Final = "nobody"
PASSWORD: Final = "open sesame"
ANONYMOUS: Final = "User:ANONYMOUS"
_ITERATIONS: Final = 4_096


class SecuredNode(HoldfastNode):
    """A node whose listener has a protocol of Kafka's, and where only the generator may read and write groups, by a rule."""

    def __init__(self, protocol: str, *, has_rules: bool = True, state_topic: str | None = None) -> None:
        """Describe a node; its files are made when it starts.

        Args:
            protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
            has_rules: whether access rules are kept; needed for all but PLAINTEXT.
            state_topic: None: one of its own, named by its name.
        """
        super().__init__()
        self.name = protocol.lower().replace("_", "+") + ("+acls" if has_rules else "")
        self.state_topic = state_topic or f"__state-{self.name.replace('+', '-')}"
        self._protocol = protocol
        self._has_rules = has_rules
        self._files = tempfile.TemporaryDirectory(prefix="holdfast-secured-")
        self.directory = Path(self._files.name)
        self.authority = self.directory / "authority.pem"

    def start(self, kafka: EmbeddedKafka) -> None:
        """Make its files, start the daemon and let clients of the benchmark know how to get in."""
        self.settings |= {"state_topic": self.state_topic, "listener.security.protocol": self._protocol}
        if self._has_rules:
            who = f"User:{USER}" if "SASL" in self._protocol else ANONYMOUS
            rules = self.directory / "acls"
            write_lines(rules, [line_of(Acl(who, Permission.ALLOW, Operation.ALL, ResourceType.GROUP, ANY))])
            self.settings |= {"acls_file": str(rules), "super.users": "User:admin"}
        if "SSL" in self._protocol:
            make_certificate(self.directory, "authority", "/CN=authority")
            pair = make_certificate(self.directory, "node", "/CN=node", signer="authority")
            self.settings |= {"listener.ssl.certificate.location": str(pair)}
        if "SASL" in self._protocol:
            write_users(self.directory / "users", dict.fromkeys((USER, ADMIN, NOBODY), PASSWORD))
            self.settings["listener.users.file"] = str(self.directory / "users")
        if self._protocol != "PLAINTEXT":
            properties = self.directory / "client.properties"
            properties.write_text(
                f"security.protocol={self._protocol}\nssl.ca.location={self.authority}\n"
                f"sasl.mechanism={MECHANISM}\nsasl.username={ADMIN}\nsasl.password={PASSWORD}\n"
            )
            self.settings["listener.client.properties.file"] = str(properties)
        super().start(kafka)
        OPENINGS[self.address] = self.let_in

    def stop(self) -> None:
        """End the daemon and remove its files."""
        super().stop()
        self._files.cleanup()

    def let_in(self, plain: socket.socket) -> socket.socket:
        """Return what a connection is after TLS and the generator's login, where the node wants them."""
        opened = plain
        if "SSL" in self._protocol:
            context = ssl.create_default_context(cafile=self.authority)
            opened = context.wrap_socket(plain, server_hostname="127.0.0.1")
        if "SASL" in self._protocol:
            log_in(opened, ClientSide(MECHANISM, USER, PASSWORD))
        return opened


def log_in(opened: socket.socket, side: ClientSide) -> None:
    """Log in over a connection.

    Raises:
        BenchmarkError: the node lets nobody in so.
    """
    _call(opened, SASL_HANDSHAKE, HANDSHAKE_VERSION, encode_handshake(MECHANISM), has_tags=False)

    def say(message: bytes) -> bytes:
        body = encode_authenticate(AUTHENTICATE_VERSION_MAX, message)
        answer = _call(opened, SASL_AUTHENTICATE, AUTHENTICATE_VERSION_MAX, body, has_tags=True)
        found = decode_authenticate_answer(AUTHENTICATE_VERSION_MAX, answer, 5)
        if found.error_code:
            raise BenchmarkError(f"A login was refused: {found.error_message}")
        return found.message

    side.check(say(side.prove(say(side.begin()))))


def _call(opened: socket.socket, api_key: int, version: int, body: bytes, *, has_tags: bool) -> bytes:
    """Send a request and return its answer, correlation id first."""
    opened.sendall(encode_request(api_key, version, 0, CLIENT_ID, body, has_tags))
    return _receive(opened, int.from_bytes(_receive(opened, 4), "big"))


def _receive(opened: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = opened.recv(size - len(data))
        if not piece:
            raise BenchmarkError("A node closed a connection in a login.")
        data += piece
    return data


def write_users(path: Path, passwords: Mapping[str, str]) -> None:
    """Write the file of users who can log in."""
    users = {name: {each: derive(each, text, _ITERATIONS) for each in KEY_BYTES} for name, text in passwords.items()}
    write_kept(path, KeptUsers({}).changed(users))


def make_certificate(directory: Path, name: str, subject: str, signer: str | None = None) -> Path:
    """Return a PEM file with a new certificate and its key, signed by another one or by itself."""
    file = directory / f"{name}.pem"
    key = directory / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", subject, "-keyout", str(key), "-out", str(file)]
    if signer is None:
        command += ["-addext", "keyUsage=keyCertSign"]
    else:
        command += ["-CA", str(directory / f"{signer}.pem"), "-CAkey", str(directory / f"{signer}.key")]
        command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    if signer is not None:
        file.write_text(file.read_text() + key.read_text())
    return file
