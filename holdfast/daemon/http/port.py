"""The HTTP port as a node opens it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from holdfast.daemon.access.following import is_open
from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.http.app import NodeView, make_app
from holdfast.daemon.http.guard import GuardRefused, HostCheck, make_guard, own_names, tls_files
from holdfast.daemon.http.queries import Page, Query
from holdfast.daemon.http.readers import Principals
from holdfast.daemon.http.server import CannotListenHttp, HttpServer
from holdfast.daemon.login.tls import FollowedTls, TlsFilesWrong
from holdfast.daemon.settings.models import Settings

_log = structlog.get_logger(__name__)


async def open_http_port(
    node: NodeView, settings: Settings, files: FileWatch, queries: Mapping[str, Query], pages: Sequence[Page] = ()
) -> HttpServer | None:
    """Return the server that shows a node, from now on; None: there is no port.

    Raises:
        CannotListenHttp: the address that was set is in use or not ours.
        GuardRefused: a file that guards the port cannot be used.
    """
    http = settings.http
    address = http.listen_address
    if address is None:
        return None
    host, port = address
    app = make_app(node, make_guard(http, is_listener_open=is_open(settings)), queries, pages)
    named, principal_of = tls_files(http), Principals(settings).principal_of
    if named is None:
        # With TLS no other name can be meant: the certificate would not have it.
        checked = HostCheck(app, own_names(host, http.allowed_hosts))
        server = HttpServer(checked, http, node.context.internal_errors, principal_of=principal_of)
    else:
        try:
            tls = FollowedTls("http", named, files, node.context.registry)
        except TlsFilesWrong as error:
            raise GuardRefused(str(error)) from None
        server = HttpServer(app, http, node.context.internal_errors, tls, principal_of=principal_of)
    try:
        await server.start(host, port)
    except CannotListenHttp as refusal:
        if not http.may_move:
            raise
        # Another node of this host has the default port, which should not keep this one from serving.
        await server.start(host, 0)
        _log.warning("http_port_moved", port=server.port, why=str(refusal))
    _log.info("http_listening", address=http.listen, port=server.port, is_tls=server.is_tls)
    return server
