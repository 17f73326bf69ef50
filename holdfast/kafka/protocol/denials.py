"""What mends a broker's refusal to let a client do something: the ACL that it lacks."""

from typing import Final

from holdfast.kafka.protocol.error_codes import ErrorCode

_DENIALS: Final = frozenset(
    (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )
)
#: Where it is not known as whom a client logs in.
UNNAMED: Final = "this client's principal (User: and kafka.sasl.username, or the name in its certificate)"


def acl_remedy(error_code: int, operation: str, resource: str, principal: str = UNNAMED) -> str:
    """Return the end of a sentence that names the ACL to add; empty where the error is about something else.

    Args:
        error_code: Kafka's.
        operation: the one that it refuses, as `kafka-acls.sh` has it: `DescribeConfigs`.
        resource: its kind and name: `topic orders`.
        principal: who lacks it, as brokers have it, or how that is found.
    """
    if error_code not in _DENIALS:
        return ""
    return f"; allow {operation} on {resource} to {principal}"
