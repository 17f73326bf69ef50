"""The settings of the HTTP port: where it listens, what its clients may cost, and how they show that they may read."""

from typing import Final, Self

from pydantic import model_validator

from holdfast.daemon.settings.components.listener import is_loopback
from holdfast.daemon.settings.declarations import Address, Component, Names, count, setting
from holdfast.kafka.addresses import parse_address

_DEFAULT: Final = "127.0.0.1:9592"


class HttpSettings(Component):
    """The HTTP port, for probes, Prometheus and programs that look at a node."""

    name_prefix = "http."

    listen: Address = setting(
        _DEFAULT,
        "Address of the HTTP port (`/live`, `/ready`, `/metrics` and more), as host:port; port 0 takes a free one, and empty is for "
        "none. A node takes a free port if the default one is in use, and ends if one that was set is. Anything else than a loopback "
        "address needs TLS, and a token or certificates of clients. Several workers share this address, and each also has a "
        "port of its own, from the one after this on.",
    )
    port_may_move: bool = setting(
        False, "Take any free port where that of `http.listen` is in use, as is done with the default one."
    )
    allowed_hosts: Names = setting(
        (),
        "Names of this node, beside `localhost` and the host of `http.listen`, by which HTTP requests without TLS may call it; a "
        "request by another name is refused, so that no page in a browser of this machine reads the port. Addresses are no names.",
    )
    connections_max: int = count(
        64, "Open connections to the HTTP port, TLS handshakes included; further ones are closed at once.", most=10_000
    )
    connections_per_address_max: int = count(
        32, "Open connections to the HTTP port from one address; the bound leaves room for others.", most=10_000
    )
    token_file: str = setting(
        "",
        "File whose first line is the token that a client of the HTTP port sends as `Authorization: Bearer`; it is read again when "
        "it changes. `/live`, and `/ready` without details, need none. Empty: no token is needed.",
    )
    tls_certificate_file: str = setting(
        "", "File with the certificate of the HTTP port and those up to its root, as PEM. Empty: HTTP without TLS."
    )
    tls_key_file: str = setting("", "File with the key of that certificate, as PEM. Empty: it is in the same file.")
    tls_client_ca_file: str = setting(
        "", "File with the roots of certificates, as PEM, of which each client must show one. Empty: none has to."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.tls_certificate_file and (self.tls_key_file or self.tls_client_ca_file):
            raise ValueError("http.tls.key.file and http.tls.client.ca.file need http.tls.certificate.file")
        address = self.listen_address
        if address is None or is_loopback(address[0]):
            return self
        if not self.tls_certificate_file:
            raise ValueError(
                f"http.listen is {self.listen}, which others can reach; set http.tls.certificate.file, and http.token.file or "
                f"http.tls.client.ca.file, or listen at a loopback address"
            )
        if not (self.token_file or self.tls_client_ca_file):
            raise ValueError(
                f"http.listen is {self.listen}, which others can reach; set http.token.file or http.tls.client.ca.file, so that "
                f"clients show that they may read"
            )
        return self

    @property
    def may_move(self) -> bool:
        """Whether any free port will do where that of the address is in use: nobody relies on it."""
        return self.port_may_move or "listen" not in self.model_fields_set

    @property
    def listen_address(self) -> tuple[str, int] | None:
        """Host and port to bind; None: there is no HTTP port."""
        return parse_address(self.listen) if self.listen else None
