"""The readers of the HTTP port: principals, as clients of the listener are, whose rights decide about what they are shown."""

from __future__ import annotations

from typing import Final, NamedTuple

from starlette.types import Scope

from holdfast.daemon.http.guard import GuardRefused
from holdfast.daemon.login.certificates import CertificateWrong, distinguished_name
from holdfast.daemon.login.principal_rules import NoRuleFits, PrincipalRules, RulesWrong
from holdfast.daemon.server.wire.requests import ANONYMOUS
from holdfast.daemon.settings.models import Settings
from holdfast.kafka.addresses import format_address

#: The principal of a reader who has shown the token, and no certificate.
TOKEN_READER: Final = "User:http"  # noqa: S105 - a name
_USER: Final = "User:"


class Reader(NamedTuple):
    """A client that made a request (`access.audit.Client`)."""

    principal: str
    #: Host and port.
    client_address: str


class Principals:
    """The principals of readers, by their certificates."""

    def __init__(self, settings: Settings) -> None:
        """Read the rules of the listener for names.

        Raises:
            GuardRefused: they are not of their form.
        """
        try:
            self._rules = PrincipalRules(settings.security.ssl_principal_mapping_rules)
        except RulesWrong as error:
            raise GuardRefused(str(error)) from None
        self._without = TOKEN_READER if settings.http.token_file else ANONYMOUS

    def principal_of(self, certificate: bytes | None) -> str:
        """Return the principal of a client that has shown a certificate (DER), or none.

        A certificate of which no rule makes a name is nobody's.
        """
        if certificate is None:
            return self._without
        try:
            return _USER + self._rules.name_of(distinguished_name(certificate))
        except (CertificateWrong, NoRuleFits):
            return ANONYMOUS


def reader_of(scope: Scope) -> Reader:
    """Return the reader of a request."""
    client = scope.get("client")
    address = "unknown" if client is None else format_address(*client)
    return Reader(scope.get("state", {}).get("principal", ANONYMOUS), address)
