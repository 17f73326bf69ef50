"""The connections of uvicorn without its server: what the HTTP port of a node and the page have in common.

uvicorn's own server would take the signals of the process, and has no bound on what a slow client may hold.
"""

from typing import Any

from starlette.types import ASGIApp
from uvicorn import Config


def connections_of(app: ASGIApp, head_bytes_max: int, **others: Any) -> Config:  # noqa: ANN401
    """Return the settings of connections that serve an application on a loop of ours, and write no line about what clients do.

    Args:
        app: answers; it tells of its bugs itself.
        head_bytes_max: line and headers of a request.
        others: settings of uvicorn by which one port differs from the other.
    """
    return Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        loop="none",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=head_bytes_max,
        **others,
    )
