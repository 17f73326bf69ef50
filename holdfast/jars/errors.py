"""What can go wrong with the embedded broker."""


class BrokerError(Exception):
    """The embedded broker could not be fetched, started or stopped; the text is one sentence that names the fix."""
