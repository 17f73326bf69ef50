"""What can go wrong with Kafka from a client's side; the callers say what that means for them."""

from collections.abc import Collection


class PropertyRefused(Exception):
    """A property of the Kafka client cannot be used; the text names it as the setting does, `kafka.` in front."""


class ConnectionFailed(Exception):
    """A broker could not be reached, closed the connection, or sent no answer that can be used; another try may succeed."""


class SetupRefused(ConnectionFailed):
    """A broker answers and refuses what the settings say: how to log in, or a right; another try gets the same until that is changed."""


class LoginDenied(SetupRefused):
    """A broker, or the endpoint of tokens, does not let in who the settings say that we are."""


def all_failed(failures: Collection[ConnectionFailed]) -> ConnectionFailed:
    """Return the failure of what no server would do, with why of each: clauses have a semicolon between them, sentences have none.

    It is a refusal of our settings where one server answered so, because another try gets that again.
    """
    text = "; ".join(map(str, failures)).replace(".; ", ". ")
    for kind in (LoginDenied, SetupRefused):
        if any(isinstance(failure, kind) for failure in failures):
            return kind(text)
    return ConnectionFailed(text)


class UnreadableAnswer(ConnectionFailed):
    """A broker answered with bytes that do not follow the message they claim to be; as good as no answer."""


class VersionUnsupported(ConnectionFailed):
    """A broker is too old, or too new, for a request; another try gets the same from this one."""
