"""How brokers are reached: from the properties that all clients share to what a connection is opened with (`brokers`)."""

import ssl
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.kafka import addresses
from holdfast.kafka.brokers.busy_poll import BusyPolling
from holdfast.kafka.oauth.sources import Bearer
from holdfast.kafka.oauth.tokens import TokenKeeper
from holdfast.kafka.security import Sasl, Security, make_ssl_context, parse_security, principal_of, wrong_value

Address = addresses.Address


class AnswerTimes:
    """When brokers answered last, by their addresses, over all connections of a process; by the loop's clock, in seconds."""

    def __init__(self) -> None:
        self.by_address: dict[Address, float] = {}

    def heard_s(self, address: Address) -> float | None:
        """Return when a broker answered last, by the loop's clock; None: it never did."""
        return self.by_address.get(address)

    def keep(self, addresses: Collection[Address]) -> None:
        """Forget all other addresses."""
        for address in self.by_address.keys() - addresses:
            del self.by_address[address]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How to connect to any broker of one cluster."""

    #: Not empty.
    bootstrap: tuple[Address, ...]
    security_protocol: str = "PLAINTEXT"
    #: aiokafka's arguments; empty without a password.
    sasl: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Gives the tokens of SASL OAUTHBEARER; None: another mechanism, or none.
    tokens: TokenKeeper | None = field(default=None, repr=False, compare=False)
    ssl_context: ssl.SSLContext | None = None
    #: Of which the certificate of the other side must be; empty: of the host that is connected to.
    tls_name: str = ""
    client_id: str = "holdfast"
    #: Who brokers take us for, see `security.principal_of`.
    principal: str = "User:ANONYMOUS"
    #: How the event loop polls for what comes next.
    busy_polling: BusyPolling = field(default_factory=BusyPolling, repr=False, compare=False)
    #: When each broker answered last.
    answers: AnswerTimes = field(default_factory=AnswerTimes, repr=False, compare=False)
    #: Gives what says of security how the next connection is opened; None: these do.
    renewed: "Callable[[], ConnectionOptions] | None" = field(default=None, repr=False, compare=False)
    #: The properties that they were made of, for clients of librdkafka; None: they were given by hand.
    live: "LiveProperties | None" = field(default=None, repr=False, compare=False)

    def who(self) -> str:
        """Return who brokers take the next connection for."""
        return self.principal if self.renewed is None else self.renewed().principal


#: Of brokers.
_DEFAULT_PORT: Final = 9092


def connection_options(properties: Mapping[str, str]) -> ConnectionOptions:
    """Return how our own connections reach the brokers.

    Raises:
        PropertyRefused: a property about security has no counterpart here, a value is wrong, or a file cannot be read.
    """
    security = parse_security(properties)
    bootstrap = _parse_servers(properties.get("bootstrap.servers", ""))
    return secured_options(bootstrap, security, properties.get("client.id", "holdfast"))


class LiveProperties:
    """librdkafka's properties of one cluster as they are now: those about security may be renewed while a node runs."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.current = properties
        #: How often they were renewed.
        self.renewals = 0
        #: None before the first connection.
        self._secured: ConnectionOptions | None = None

    def connection_options(self) -> ConnectionOptions:
        """Return how our own connections reach the brokers; each goes by the properties of the time at which it is opened.

        Raises:
            PropertyRefused: as `connection_options`.
        """
        return replace(self._options(), answers=AnswerTimes(), renewed=self._options, live=self)

    def renew(self, properties: Mapping[str, str]) -> None:
        """Go by other properties from now on, and by what their files hold now.

        Raises:
            PropertyRefused: as `connection_options`; the former ones stay.
        """
        self._secured = connection_options(properties)
        self.current = properties
        self.renewals += 1

    def _options(self) -> ConnectionOptions:
        if self._secured is None:
            self._secured = connection_options(self.current)
        return self._secured


def secured_options(bootstrap: tuple[Address, ...], security: Security, client_id: str) -> ConnectionOptions:
    """Return how our own connections reach brokers or nodes under some security.

    Raises:
        PropertyRefused: a file cannot be read.
    """
    sasl = security.sasl
    return ConnectionOptions(
        bootstrap=bootstrap,
        security_protocol=security.protocol,
        sasl={
            "sasl_mechanism": sasl.mechanism,
            "sasl_plain_username": sasl.username,
            "sasl_plain_password": sasl.password,
        }
        if isinstance(sasl, Sasl)
        else {},
        tokens=TokenKeeper(sasl) if isinstance(sasl, Bearer) else None,
        ssl_context=None if security.tls is None else make_ssl_context(security.tls),
        client_id=client_id,
        principal=principal_of(security),
    )


def _parse_servers(text: str) -> tuple[Address, ...]:
    servers = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        try:
            servers.append(addresses.parse_address(part.rpartition("://")[2], _DEFAULT_PORT))
        except ValueError:
            raise wrong_value("bootstrap.servers", text, "host:port,host:port") from None
    if not servers:
        raise wrong_value("bootstrap.servers", text, "host:port,host:port")
    return tuple(servers)
