"""The HTTP port as a node opens it."""

import structlog

from holdfast.daemon.http.app import NodeView, make_app
from holdfast.daemon.http.guard import make_guard
from holdfast.daemon.http.server import CannotListenHttp, HttpServer
from holdfast.daemon.settings.components.http import HttpSettings

_log = structlog.get_logger(__name__)


async def open_http_port(node: NodeView, settings: HttpSettings) -> HttpServer | None:
    """Return the server that shows a node, from now on; None: there is no port.

    Raises:
        CannotListenHttp: the address that was set is in use or not ours.
        GuardRefused: a file that guards the port cannot be used.
    """
    if not settings.listen:
        return None
    server = HttpServer(make_app(node, make_guard(settings)), settings)
    try:
        await server.start()
    except CannotListenHttp as refusal:
        if settings.is_address_given:
            raise
        # Another node of this host has the default port, which should not keep this one from serving.
        _log.warning("http_port_unavailable", why=str(refusal))
        return None
    _log.info("http_listening", address=settings.listen, port=server.port, is_tls=server.is_tls)
    return server
