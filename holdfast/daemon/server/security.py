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

from holdfast.daemon.access.audit import Audit
from holdfast.daemon.context import NodeContext
from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.login.certificates import CertificateWrong, distinguished_name
from holdfast.daemon.login.credentials import KeptUsers, Users
from holdfast.daemon.login.password_checks import Finding, PasswordCheck, PasswordChecks
from holdfast.daemon.login.principal_rules import NoRuleFits, PrincipalRules, RulesWrong
from holdfast.daemon.login.sasl_login import LoggedIn, LoginRules, Outcome, Refused, SaslLogin, Undecided
from holdfast.daemon.login.tls import FollowedTls, NamedFile, TlsFiles, TlsFilesWrong
from holdfast.daemon.login.users_file import UsersFileWrong, read_users
from holdfast.daemon.server.wire.requests import ANONYMOUS, Body, Request, Respond, Violation
from holdfast.daemon.server.wire.security import LoginConnection, NotAdmitted
from holdfast.daemon.settings.components.listener import SecuritySettings, principal_problem
from holdfast.kafka.protocol.sasl_calls import SASL_AUTHENTICATE, SASL_HANDSHAKE
from holdfast.metrics.registry import Registry

_log = structlog.get_logger(__name__)

#: A type and a name, as Kafka writes principals.
_USER: Final = "User:"
#: In the place of a mechanism of SASL.
_BY_CERTIFICATE: Final = "SSL"
_CLIENT_AUTH: Final = {"none": CERT_NONE, "requested": CERT_OPTIONAL, "required": CERT_REQUIRED}

#: Largest message of PLAIN or SCRAM; the longest password that `holdfast users` takes has a quarter of it.
_SASL_MESSAGE_BYTES_MAX: Final = 4_096
#: Of a request before a login: room for a login message and the name of a client that says nothing else.
_LOGIN_FRAME_BYTES_MAX: Final = 64 * 1024
#: Logins by PLAIN that may wait for the check of their password, which takes milliseconds each: the last waits for some seconds, well
#: within the time of a login. Addresses take turns, and one address has a fifth of the places at most.
_PLAIN_LOGINS_WAITING_MAX: Final = 500
_PLAIN_LOGINS_WAITING_PER_ADDRESS_MAX: Final = 100


class CannotAdmit(Exception):
    """The files behind the listener's security cannot be used; the text names the setting."""


class LoginMetrics:
    """What becomes of logins."""

    def __init__(self, registry: Registry) -> None:
        self.succeeded = registry.counter("logins", "Logins of clients that succeeded.")
        self.failed = registry.counter("logins_failed", "Logins of clients that failed.")
        self.put_off = registry.counter(
            "plain_logins_put_off",
            "Logins by PLAIN that were told to try again, because too many waited for the check of their password; 0 is healthy.",
        )
        self._registry = registry

    def show_waiting(self, count: Callable[[], int]) -> None:
        """Show how many passwords wait for their check."""
        self._registry.gauge(
            "plain_logins_waiting",
            "Logins by PLAIN that wait for the check of their password.",
            count,
        )


class NodeSecurity:
    """TLS and logins of a node's listener (`wire.security.ListenerSecurity`)."""

    def __init__(
        self,
        settings: SecuritySettings,
        files: FileWatch,
        context: NodeContext,
        audit: Audit,
        plain_logins_waiting_per_address_max: int = _PLAIN_LOGINS_WAITING_PER_ADDRESS_MAX,
    ) -> None:
        """Read the files that the settings name, and read them again when `files` says so; logins are noted in `audit`.

        Raises:
            CannotAdmit: one cannot be used, or the rules are wrong.
        """
        self.login_timeout_ms = settings.login_timeout_ms
        self.login_frame_size_bytes_max = _LOGIN_FRAME_BYTES_MAX
        self._settings = settings
        self._audit = audit
        self._internal_errors = context.internal_errors
        self._tls: FollowedTls | None = None
        self._users = Users(KeptUsers({}))
        self._login_rules = LoginRules(
            settings.sasl_enabled_mechanisms,
            _SASL_MESSAGE_BYTES_MAX,
            settings.connections_max_reauth_ms,
            lambda: self._users,
        )
        self._checker = ThreadPoolExecutor(1, thread_name_prefix="holdfast-login")
        self._checks = checks = PasswordChecks(
            self._begin_check, _PLAIN_LOGINS_WAITING_MAX, plain_logins_waiting_per_address_max
        )
        self._metrics = LoginMetrics(context.registry)
        self._metrics.show_waiting(lambda: checks.waiting)
        try:
            self._rules = PrincipalRules(settings.ssl_principal_mapping_rules)
            if settings.has_tls:
                self._tls = FollowedTls("listener", tls_files(settings), files, context.registry)
            if settings.has_login:
                files.follow("listener.users.file", lambda: [Path(settings.users_file)], self._reload_users)
                self._load_users()
        except RulesWrong as error:
            raise CannotAdmit(f"ssl.principal.mapping.rules is wrong: {error}.") from None
        except (TlsFilesWrong, UsersFileWrong) as error:
            raise CannotAdmit(str(error)) from None

    @property
    def ssl_context(self) -> SSLContext | None:
        """See `ListenerSecurity.ssl_context`."""
        return None if self._tls is None else self._tls.context

    def begin_login(self, connection: LoginConnection) -> ClientLogin | None:
        """See `ListenerSecurity.begin_login`."""
        if not self._settings.has_login:
            return None
        times_ms = self._settings.connection_failed_authentication_delay_ms, self._settings.login_timeout_ms
        login = SaslLogin(self._login_rules)
        return ClientLogin(login, connection, self._metrics, self._audit, self._checks, *times_ms)

    def principal_of(self, certificate: bytes | None, client_address: str) -> str:
        """See `ListenerSecurity.principal_of`."""
        if certificate is None or self._settings.ssl_client_auth == "none" or self._settings.has_login:
            return ANONYMOUS
        name = ""
        try:
            name = distinguished_name(certificate)
            principal = _USER + self._rules.name_of(name)
            if principal in (_USER, ANONYMOUS):
                raise NoRuleFits(f"ssl.principal.mapping.rules make {principal!r} of {name!r}, which is nobody's name")
            if why := principal_problem(principal):
                raise NoRuleFits(f"ssl.principal.mapping.rules make a principal of {name!r} that {why}")
        except (CertificateWrong, NoRuleFits) as error:
            self._metrics.failed.value += 1
            self._audit.login_refused(client_address, name, _BY_CERTIFICATE, str(error))
            raise NotAdmitted(str(error)) from None
        self._metrics.succeeded.value += 1
        self._audit.logged_in(client_address, principal, _BY_CERTIFICATE)
        return principal

    def not_encrypted(self, client_address: str, why: str) -> None:
        """See `ListenerSecurity.not_encrypted`."""
        if self._settings.ssl_client_auth != "none" and not self._settings.has_login:
            self._metrics.failed.value += 1
            self._audit.login_refused(client_address, "", _BY_CERTIFICATE, why)

    async def stop(self) -> None:
        """Check no more passwords."""
        self._checker.shutdown(wait=False, cancel_futures=True)
        if self._tls is not None:
            self._tls.stop()

    def _begin_check(self, check: Callable[[], bool], done: Callable[[bool], None]) -> None:
        def take(found: asyncio.Future[bool]) -> None:
            if found.cancelled():  # the node stops
                return
            bug = found.exception()
            if bug is not None:  # others wait for the end of this check
                self._internal_errors.note_bug("password_check_failed", bug)
            done(bug is None and found.result())

        asyncio.get_running_loop().run_in_executor(self._checker, check).add_done_callback(take)

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
    """The login of one connection (`wire.security.Login`): what `SaslLogin` decides is carried out."""

    def __init__(
        self,
        login: SaslLogin,
        connection: LoginConnection,
        metrics: LoginMetrics,
        audit: Audit,
        checks: PasswordChecks,
        delay_ms: int,
        timeout_ms: int,
    ) -> None:
        """Log the client of `connection` in; the answer to a failed login is held back for `delay_ms`.

        The first login has its time from the connection on; each later one has `timeout_ms`.
        """
        self._login = login
        self._connection = connection
        self._metrics = metrics
        self._audit = audit
        self._checks = checks
        self._delay_ms = delay_ms
        self._timeout_ms = timeout_ms
        #: Ends a login that has begun while the one before it holds; None: there is none.
        self._timeout: asyncio.TimerHandle | None = None
        #: The newest.
        self._check: PasswordCheck | None = None
        #: What takes the answer to its request.
        self._undecided: Respond | None = None
        #: Whether the client has logged in once.
        self._is_known = False
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
        return Violation("login_expired", "it has not logged in again in time (connections.max.reauth.ms)")

    def end(self) -> None:
        """See `Login.end`."""
        if self._check is not None:
            self._checks.cancel(self._check)
        self._stop_timeout()
        respond, self._undecided = self._undecided, None
        if respond is not None:  # nobody gets this, but what the request takes is given back
            respond(b"")

    def _carry_out(self, outcome: Outcome, respond: Respond) -> None:
        if isinstance(outcome, Undecided):
            self._undecided = respond
            self._check = PasswordCheck(self._connection.host, outcome.check, lambda found: self._take(found, respond))
            self._checks.add(self._check)
        elif isinstance(outcome, Refused):
            self._metrics.failed.value += 1
            self._refuse(outcome, Violation("login_failed", str(outcome)), respond)
        else:
            if isinstance(outcome, LoggedIn):
                self._let_in(outcome)
            elif self._is_known and self._timeout is None:
                timeout_s = self._timeout_ms / 1_000
                self._timeout = asyncio.get_running_loop().call_later(timeout_s, self._time_out)
            respond(outcome.body)

    def _take(self, found: Finding, respond: Respond) -> None:
        if found is not None:
            self._carry_out(self._login.checked(found), respond)
        else:
            self._metrics.put_off.value += 1
            refused = self._login.put_off()
            self._refuse(refused, Violation("login_put_off", str(refused)), respond)
        self._undecided = None

    def _let_in(self, outcome: LoggedIn) -> None:
        self._metrics.succeeded.value += 1
        self._is_known = True
        self._stop_timeout()
        self._ends_ms = None if outcome.lifetime_ms == 0 else monotonic() * 1_000 + outcome.lifetime_ms
        self._connection.let_in(_USER + outcome.name)
        self._audit.logged_in(self._connection.address, _USER + outcome.name, outcome.mechanism)

    def _time_out(self) -> None:
        text = "it has begun to log in again, and did not within its time (listener.login.timeout.ms)"
        self._connection.close(Violation("login_timed_out", text))

    def _stop_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def _refuse(self, outcome: Refused, violation: Violation, respond: Callable[[Body], None]) -> None:
        self._stop_timeout()
        self._audit.login_refused(self._connection.address, outcome.name, outcome.mechanism, outcome.why)
        self._connection.close_answered(violation)
        asyncio.get_running_loop().call_later(self._delay_ms / 1_000, respond, outcome.body)
