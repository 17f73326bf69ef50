"""What goes wrong with the embedded broker."""


class BrokerError(Exception):
    """An embedded broker that could not be started or stopped; the text is one sentence that names the fix."""
