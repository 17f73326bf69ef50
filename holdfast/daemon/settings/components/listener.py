"""The settings of the listener: where the node listens, who may come in and do what, and what its clients may cost."""

from ipaddress import ip_address
from typing import Annotated, ClassVar, Literal, Self
from unicodedata import is_normalized, normalize

from pydantic import AfterValidator, BeforeValidator, model_validator

from holdfast.daemon.settings.declarations import MIB, MINUTE_MS, Address, Component, Names, count, setting, time_ms
from holdfast.kafka.addresses import DEFAULT_PORT, parse_address


class ListenerSettings(Component):
    """The address on which the node listens, and the one by which clients reach it."""

    listen: Address = setting(
        f"127.0.0.1:{DEFAULT_PORT}",
        "Address to listen on, as host:port. `0.0.0.0` listens everywhere and then needs "
        "`advertised_listener`; port 0 takes a free one.",
        min_length=1,
    )
    advertised_listener: Address = setting(
        "", "Address that clients and other nodes are given, as host:port. Empty: the same as `listen`."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        host, _ = parse_address(self.listen)
        if self.advertised_listener:
            advertised, port = parse_address(self.advertised_listener)
            if advertised in ("0.0.0.0", "::") or port == 0:  # noqa: S104
                raise ValueError("advertised_listener must be an address that clients can connect to, host and port")
        elif host in ("0.0.0.0", "::"):  # noqa: S104
            raise ValueError(
                f"listen is {self.listen}, which no client can connect to; set advertised_listener as well"
            )
        return self

    @property
    def listen_address(self) -> tuple[str, int]:
        """Host and port to bind."""
        return parse_address(self.listen)

    @property
    def advertised_address(self) -> tuple[str, int]:
        """Host and port to advertise; where no `advertised_listener` is set and `listen` has port 0, the port is 0."""
        return parse_address(self.advertised_listener or self.listen)

    @property
    def is_on_loopback(self) -> bool:
        """Whether only this machine reaches what is listened on."""
        return is_loopback(self.listen_address[0])


def principal_problem(principal: str) -> str:
    """Return why a text names no principal; empty if it does."""
    if not principal.startswith("User:") or len(principal) == len("User:"):
        return f"is {principal[:100]!r}; it must be User: and a name, as in User:orders"
    if not is_normalized("NFKC", principal):
        fix = normalize("NFKC", principal[:100])
        return f"is {principal[:100]!a}; it must be normalised by Unicode's NFKC, as logins are: {fix!r}"
    return ""


def _split_principals(value: object) -> object:
    # As Kafka does: a name may have commas in it, as those of certificates have.
    return [part.strip() for part in value.split(";") if part.strip()] if isinstance(value, str) else value


def _check_principals(principals: tuple[str, ...]) -> tuple[str, ...]:
    for principal in principals:
        if problem := principal_problem(principal):
            raise ValueError(f"a principal in it {problem}")
    return principals


class AccessSettings(Component):
    """The rights of clients."""

    super_users: Annotated[tuple[str, ...], BeforeValidator(_split_principals), AfterValidator(_check_principals)] = (
        setting(
            (),
            "Principals that may do everything, as in `User:admin`; in a text with a semicolon between them. "
            "`User:ANONYMOUS` is every client without login.",
            kafka="super.users",
        )
    )
    acls_file: str = setting(
        "",
        "File of access rules, one a line as `holdfast acls add` writes them. A change of it is taken over without a restart. "
        "Empty: on a loopback address without TLS and login everything is allowed, anywhere else nothing but to `super.users`.",
    )


class FileSettings(Component):
    """The files that settings name and a running node follows."""

    name_prefix: ClassVar[str] = "files."

    reload_interval_ms: int = time_ms(
        5_000, "How often such a file is looked at, whether it changed; SIGHUP has it read at once.", minimum=100
    )


class LimitSettings(Component):
    """Bounds on the cost of clients, of each and of all together."""

    frame_size_bytes_max: int = setting(
        8 * MIB,
        "Largest request. Kafka's default of 100 MiB is for records, which no client sends here.",
        kafka="socket.request.max.bytes",
        ge=1024,
        le=100 * MIB,
    )
    buffered_bytes_max: int = setting(
        256 * MIB,
        "Bytes of requests that are not complete or wait for their turn, on all connections; the connection that "
        "holds most of them is closed to go on.",
        ge=1024,
        le=1024 * 1024 * MIB,
    )
    connections_max: int = count(1_000, "Open connections.", kafka="max.connections")
    connections_per_address_max: int = count(
        500, "Open connections from one address; the bound leaves room for others.", kafka="max.connections.per.ip"
    )
    connections_max_idle_ms: int = time_ms(
        10 * MINUTE_MS,
        "A connection without a request for so long is closed, and so is one whose client does not take its answers.",
        kafka="connections.max.idle.ms",
    )
    requests_in_flight_bytes_max: int = setting(
        256 * MIB,
        "Memory that the requests of all connections may take while they are carried out, as estimated from their "
        "size; then large ones wait, and every connection has its share for small ones.",
        ge=1024,
        le=1024 * 1024 * MIB,
    )
    requests_in_flight_per_principal_max: int = count(
        500,
        "Requests of one principal, on all its connections, that may wait for an answer; then no more of them are begun. "
        "Without login an address counts as a principal.",
        most=1_000_000,
    )
    requests_in_flight_bytes_per_principal_max: int = setting(
        128 * MIB,
        "Memory that the requests of one principal may take while they are carried out, as estimated from their size; "
        "then large ones of it wait. Below requests_in_flight_bytes_max it leaves some to the others.",
        ge=1024,
        le=1024 * 1024 * MIB,
    )
    answer_size_bytes_max: int = setting(
        8 * MIB,
        "Largest answer to a Read, one share partition excepted: those that have no room in it are answered "
        "COORDINATOR_NOT_AVAILABLE, and must be requested again. It ends a page of listed share partitions, too.",
        ge=1024,
        le=1024 * MIB,
    )
    unsent_bytes_max: int = setting(
        256 * MIB,
        "Answers that may wait for their clients, in bytes on all connections; the connection that holds most of "
        "them is closed to go on.",
        ge=1024,
        le=1024 * 1024 * MIB,
    )


#: All that there are.
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class SecuritySettings(Component):
    """How clients and other nodes prove who they are, and what they see of the node."""

    # Without it, some would have the names of properties of librdkafka, which `kafka.` goes before.
    name_prefix: ClassVar[str] = "listener."

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = setting(
        "PLAINTEXT",
        "Protocol spoken at `listen`: TLS with SSL, a login with SASL. Without TLS it must be a loopback address, "
        "unless `listener.insecure` is true.",
    )
    insecure: bool = setting(
        False,
        "Listen on any address without TLS, so that data, and passwords of PLAIN, can be read on the network. "
        "`holdfast serve --insecure` sets it.",
    )
    ssl_certificate_location: str = setting(
        "", "PEM file with the certificate of the node and those that lead to its authority."
    )
    ssl_key_location: str = setting("", "PEM file with the private key. Empty: it is in the file of the certificate.")
    ssl_key_password: str = setting("", "Password of the private key.", repr=False)
    ssl_ca_location: str = setting("", "PEM file with the authorities that sign the certificates of clients.")
    ssl_client_auth: Literal["none", "requested", "required"] = setting(
        "none",
        "Whether the node asks clients for a certificate. none: it does not; requested: a client may show one; required: without "
        "one it is not let in. Under SSL its name becomes the principal, under SASL_SSL the login decides who a client is.",
        kafka="ssl.client.auth",
    )
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT",
        "From the name in a client's certificate to its principal: RULE:pattern/replacement/[LU] or DEFAULT, separated by "
        "commas; the first that fits decides.",
        kafka="ssl.principal.mapping.rules",
    )
    sasl_enabled_mechanisms: Names = setting(
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "Mechanisms by which clients log in, of PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.",
        kafka="sasl.enabled.mechanisms",
    )
    users_file: str = setting("", "File with the users who can log in; `holdfast users` writes it.")
    connections_max_reauth_ms: int = setting(
        0,
        "How long a login holds; then the client must log in again on its connection, or loses it. 0: for good.",
        kafka="connections.max.reauth.ms",
        ge=0,
        le=24 * 60 * MINUTE_MS,
    )
    connection_failed_authentication_delay_ms: int = setting(
        100,
        "How long the answer to a failed login is held back. Below listener.login.timeout.ms.",
        kafka="connection.failed.authentication.delay.ms",
        ge=0,
        le=MINUTE_MS,
    )
    login_timeout_ms: int = time_ms(
        10_000, "How long a client may take from its connection to the end of its login, the TLS handshake included."
    )
    client_properties_file: str = setting(
        "", "Properties by which this node reaches other nodes and workers, as `holdfast --command-config` takes them."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.has_tls and not self.ssl_certificate_location:
            raise ValueError(
                f"listener.security.protocol is {self.security_protocol}, which needs listener.ssl.certificate.location"
            )
        if self.has_tls and self.ssl_client_auth != "none" and not self.ssl_ca_location:
            raise ValueError(f"ssl.client.auth is {self.ssl_client_auth}, which needs listener.ssl.ca.location")
        unknown = [each for each in self.sasl_enabled_mechanisms if each not in _MECHANISMS]
        if unknown or not self.sasl_enabled_mechanisms:
            named = ", ".join(unknown) or "empty"
            raise ValueError(f"sasl.enabled.mechanisms is {named}; there are {', '.join(_MECHANISMS)}")
        if self.has_login and not self.users_file:
            raise ValueError(f"listener.security.protocol is {self.security_protocol}, which needs listener.users.file")
        if self.security_protocol != "PLAINTEXT" and not self.client_properties_file:
            raise ValueError(
                f"listener.security.protocol is {self.security_protocol}, and a node queries others before it takes their place; "
                "set listener.client.properties.file to the properties by which it reaches them"
            )
        if self.connection_failed_authentication_delay_ms >= self.login_timeout_ms:
            raise ValueError("connection.failed.authentication.delay.ms must be below listener.login.timeout.ms")
        return self

    @property
    def has_tls(self) -> bool:
        """Whether the listener speaks TLS."""
        return self.security_protocol.endswith("SSL")

    @property
    def has_login(self) -> bool:
        """Whether clients must log in."""
        return self.security_protocol.startswith("SASL_")

    def why_exposed(self, host: str) -> str:
        """Return what is wrong with listening on a host; empty if nothing is."""
        if self.has_tls or self.insecure or is_loopback(host):
            return ""
        return (
            f"listen has the host {host}, which other machines reach, and listener.security.protocol is "
            f"{self.security_protocol}, which encrypts nothing; set it to SASL_SSL or SSL and give the node a certificate, or set "
            "listener.insecure=true (--insecure) where only friends reach it"
        )


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine's own."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
