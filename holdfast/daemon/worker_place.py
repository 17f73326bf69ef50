"""What a node that is a worker has in common with the other workers of its host."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class WorkerPlace(NamedTuple):
    """The place of a worker among those of its host."""

    #: Listening sockets at which all of them accept connections.
    sockets: tuple[socket.socket, ...] = ()
    #: Where each of the others listens (`host:port`, as it is reached on this host), by node id.
    others: Mapping[int, str] = MappingProxyType({})
    #: How often this worker ended by itself before, and was started again.
    restarts: int = 0


#: The place of a node that is no worker.
ALONE: Final = WorkerPlace()
