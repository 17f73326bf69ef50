"""How clients come in at the listener of a node: TLS, logins, and the files behind both, read again when they change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from ssl import CERT_NONE, CERT_OPTIONAL, CERT_REQUIRED, SSLContext
from time import monotonic
from typing import Final

import structlog

from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.login.certificates import CertificateWrong, distinguished_name
from holdfast.daemon.login.credentials import Users
from holdfast.daemon.login.principal_rules import NoRuleFits, PrincipalRules, RulesWrong
from holdfast.daemon.login.sasl_login import LoggedIn, LoginRules, Outcome, Refused, SaslLogin, Undecided
from holdfast.daemon.login.tls import FollowedTls, NamedFile, TlsFiles, TlsFilesWrong
from holdfast.daemon.login.users_file import UsersFileWrong, read_users
from holdfast.daemon.server.wire.entrance import Guest, NotAdmitted
from holdfast.daemon.server.wire.requests import ANONYMOUS, Body, Request, Respond, Violation
from holdfast.daemon.settings.components.listener import SecuritySettings
from holdfast.kafka.protocol.sasl_calls import SASL_AUTHENTICATE, SASL_HANDSHAKE
from holdfast.metrics.registry import Registry

_log = structlog.get_logger(__name__)

#: A type and a name, as Kafka writes principals.
_USER: Final = "User:"
#: Logins that are checked off the loop at one time: each takes a processor for milliseconds.
_CHECKS_AT_ONCE: Final = 1
_CLIENT_AUTH: Final = {"none": CERT_NONE, "requested": CERT_OPTIONAL, "required": CERT_REQUIRED}


class CannotAdmit(Exception):
    """The files behind the listener's security cannot be used; the text names the setting."""


class LoginMetrics:
    """What becomes of logins."""

    def __init__(self, registry: Registry) -> None:
        self.succeeded = registry.counter("logins", "Logins of clients that succeeded.")
        self.failed = registry.counter("logins_failed", "Logins of clients that failed.")


class NodeEntrance:
    """How clients come in at a node's listener (`wire.entrance.Entrance`)."""

    def __init__(self, settings: SecuritySettings, files: FileWatch, registry: Registry) -> None:
        """Read the files that the settings name, and read them again when `files` says so.

        Raises:
            CannotAdmit: one cannot be used, or the rules are wrong.
        """
        self.login_timeout_ms = settings.login_timeout_ms
        self.login_frame_size_bytes_max = settings.login_frame_size_bytes_max
        self._settings = settings
        self._tls: FollowedTls | None = None
        self._users = Users()
        self._login_rules = LoginRules(
            settings.sasl_enabled_mechanisms,
            settings.sasl_message_bytes_max,
            settings.connections_max_reauth_ms,
            lambda: self._users,
        )
        self._checks = ThreadPoolExecutor(_CHECKS_AT_ONCE, thread_name_prefix="holdfast-login")
        self._metrics = LoginMetrics(registry)
        try:
            self._rules = PrincipalRules(settings.ssl_principal_mapping_rules)
            if settings.has_tls:
                days_left_min = settings.certificate_days_left_min
                self._tls = FollowedTls("listener", tls_files(settings), files, registry, days_left_min)
            if settings.has_login:
                files.follow("listener.users.file", [Path(settings.users_file)], self._reload_users)
                self._load_users()
        except RulesWrong as error:
            raise CannotAdmit(f"ssl.principal.mapping.rules is wrong: {error}.") from None
        except (TlsFilesWrong, UsersFileWrong) as error:
            raise CannotAdmit(str(error)) from None

    @property
    def ssl_context(self) -> SSLContext | None:
        """See `Entrance.ssl_context`."""
        return None if self._tls is None else self._tls.context

    def begin_login(self, guest: Guest) -> ClientLogin | None:
        """See `Entrance.begin_login`."""
        if not self._settings.has_login:
            return None
        delay_ms = self._settings.connection_failed_authentication_delay_ms
        return ClientLogin(SaslLogin(self._login_rules), guest, self._metrics, self._checks, delay_ms)

    def principal_of(self, certificate: bytes | None) -> str:
        """See `Entrance.principal_of`."""
        if certificate is None or self._settings.ssl_client_auth == "none" or self._settings.has_login:
            return ANONYMOUS
        try:
            return _USER + self._rules.name_of(distinguished_name(certificate))
        except (CertificateWrong, NoRuleFits) as error:
            raise NotAdmitted(str(error)) from None

    async def stop(self) -> None:
        """Check no more passwords."""
        self._checks.shutdown(wait=False, cancel_futures=True)
        if self._tls is not None:
            self._tls.stop()

    def _reload_users(self) -> bool:
        try:
            self._load_users()
        except UsersFileWrong as error:
            _log.error("users_refused", why=str(error))
            return False
        return True

    def _load_users(self) -> None:
        self._users = read_users(Path(self._settings.users_file))
        _log.info("users_loaded", file=self._settings.users_file, users=len(self._users))


def tls_files(settings: SecuritySettings) -> TlsFiles:
    """Return what the settings of the listener name for its TLS."""
    return TlsFiles(
        certificate=NamedFile("listener.ssl.certificate.location", settings.ssl_certificate_location),
        key=NamedFile("listener.ssl.key.location", settings.ssl_key_location),
        key_password=settings.ssl_key_password,
        authority=NamedFile("listener.ssl.ca.location", settings.ssl_ca_location),
        client_auth=_CLIENT_AUTH[settings.ssl_client_auth],
    )


class ClientLogin:
    """The login of one connection (`wire.entrance.Login`): what `SaslLogin` decides is carried out."""

    def __init__(
        self,
        login: SaslLogin,
        guest: Guest,
        metrics: LoginMetrics,
        checks: ThreadPoolExecutor,
        delay_ms: int,
    ) -> None:
        """Log `guest` in; the answer to a failed login is held back for `delay_ms`."""
        self._login = login
        self._guest = guest
        self._metrics = metrics
        self._checks = checks
        self._delay_ms = delay_ms
        #: Until when the login holds; None: for good.
        self._ends_ms: float | None = None

    def takes(self, api_key: int) -> bool:
        """See `Login.takes`."""
        return api_key in (SASL_HANDSHAKE, SASL_AUTHENTICATE)

    def handle(self, request: Request, respond: Respond) -> None:
        """See `Login.handle`."""
        self._carry_out(
            self._login.take(request.api_key, request.api_version, request.frame, request.body_offset), respond
        )

    def violation(self, now_ms: float) -> Violation | None:
        """See `Login.violation`."""
        if self._ends_ms is None or now_ms <= self._ends_ms:
            return None
        return Violation("login_expired", "it has not logged in anew in time (connections.max.reauth.ms)")

    def _carry_out(self, outcome: Outcome, respond: Respond) -> None:
        if isinstance(outcome, Undecided):
            checking = asyncio.get_running_loop().run_in_executor(self._checks, outcome.check)
            checking.add_done_callback(lambda done: self._take_check(done, respond))
        elif isinstance(outcome, Refused):
            self._refuse(outcome, respond)
        else:
            if isinstance(outcome, LoggedIn):
                self._let_in(outcome)
            respond(outcome.body)

    def _take_check(self, done: asyncio.Future[bool], respond: Respond) -> None:
        if not done.cancelled():  # else the node stops
            self._carry_out(self._login.checked(done.result()), respond)

    def _let_in(self, outcome: LoggedIn) -> None:
        self._metrics.succeeded.value += 1
        self._ends_ms = None if outcome.lifetime_ms == 0 else monotonic() * 1_000 + outcome.lifetime_ms
        self._guest.let_in(_USER + outcome.name)

    def _refuse(self, outcome: Refused, respond: Callable[[Body], None]) -> None:
        self._metrics.failed.value += 1
        self._guest.close_answered(Violation("login_failed", outcome.why))
        asyncio.get_running_loop().call_later(self._delay_ms / 1_000, respond, outcome.body)
