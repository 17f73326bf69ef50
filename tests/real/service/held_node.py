"""The command line tool with a planted bug: at SIGUSR1 its loop hangs for good, while the process and its other threads live.

Example: python -m tests.real.service.held_node serve --set kafka.bootstrap.servers=127.0.0.1:9092
"""

import os
import signal
import socket
import threading

from holdfast.cli import main

#: Sent to the service manager of a test when the loop hangs, so that the test knows what came after.
HELD = b"HELD=1"


def hang(*_: object) -> None:
    """Say so, and return never: signals are handled on the thread of the loop."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.sendto(HELD, ADDRESS)
    threading.Event().wait()


if __name__ == "__main__":
    ADDRESS = os.environ["NOTIFY_SOCKET"]
    signal.signal(signal.SIGUSR1, hang)
    main()
