"""All rights that a command about a share partition lacks, named at once: it queries the node about the topic, then about the group."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from holdfast.client import AdminRefused, Client, ClientError, ShareStateError
from holdfast.console.options import query_node, under_typed_name
from holdfast.console.outcomes import Exit, Failure
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.topic_ids import InvalidTopicId, format_topic_id, parse_topic_id

T = TypeVar("T")

#: Calls for which the node tells where a topic ends; else a topic that is named by its id needs no right.
_ENDS: Final = ("initialize", "write")

_DENIALS: Final = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED)
#: Access rules are about groups, not about topics, so any topic's id does.
_ANY_TOPIC: Final = format_topic_id(bytes(16))


def query_about(address: str, group: str, topic: str, call: str, query: Callable[[Client], Awaitable[T]]) -> T:
    """Query a node about a share partition, and return the answer.

    Args:
        address: of the node.
        group: the share group.
        topic: name or id.
        call: the state call for which it is, as `state-preview` names it.
        query: what is sent.

    Raises:
        Failure: the query failed; the message names all rights that are lacking, each with the command that gives it.
    """

    async def with_denials(client: Client) -> T:
        try:
            return await query(client)
        except (AdminRefused, ShareStateError, Failure) as refusal:
            if not _is_denial(refusal):
                raise
            asked = {"call": call, "group": group, "topic_id": _ANY_TOPIC, "partition": 0}
            lines = [await _denial(client, "resolve-topic", name=topic)] if call in _ENDS or not _is_id(topic) else []
            lines = list(filter(None, (*lines, await _denial(client, "state-preview", **asked))))
            if not lines:
                raise
            raise Failure(lines[0], Exit.DENIED, lines[1:]) from None

    return query_node(address, with_denials)


def _is_id(topic: str) -> bool:
    try:
        parse_topic_id(topic)
    except InvalidTopicId:
        return False
    return True


def _is_denial(refusal: AdminRefused | ShareStateError | Failure) -> bool:
    return refusal.exit_code == Exit.DENIED if isinstance(refusal, Failure) else refusal.code in _DENIALS


async def _denial(client: Client, command: str, **arguments: object) -> str:
    """Return why a node denies a command; empty where it does not."""
    try:
        await client.admin(command, **arguments)
    except AdminRefused as refusal:
        return under_typed_name(refusal) if refusal.code in _DENIALS else ""
    except ClientError:
        pass
    return ""
