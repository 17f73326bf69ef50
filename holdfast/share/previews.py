"""The effect of a change of a share partition's state, shown to people before they make it.

The call is decided by the shard that would carry it out, on its newest state, and nothing is recorded.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, cast

from holdfast.api.results import (
    DeletePartition,
    InitializePartition,
    PreviewPartition,
    PreviewResult,
    ReadPartition,
    StateRequest,
    StateResponse,
    WritePartition,
)
from holdfast.daemon.server.admin import AdminError, topic_id_of
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.replay import ShareState
from holdfast.share.calls import ShareCalls
from holdfast.share.service import PREVIEW

#: The client in whose name an unknown topic is looked up: all admins take turns as one.
_CALLER: Final = "admin:0"

_BITS: Final = {
    "state_epoch": 32,
    "leader_epoch": 32,
    "start_offset": 64,
    "delivery_complete_count": 32,
}
_BATCH_BITS: Final = (64, 64, 8, 16)

_Call = InitializePartition | ReadPartition | WritePartition | DeletePartition

_CALLS: Final[Mapping[str, type[_Call]]] = {
    "initialize": InitializePartition,
    "read": ReadPartition,
    "write": WritePartition,
    "delete": DeletePartition,
}


async def preview(calls: ShareCalls, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a call would do: the states `before` and `after`, None where there is none, and the error it would get.

    Args:
        calls: comes before the shards; looks up a topic that the node does not know yet.
        arguments: `call` (initialize, read, write or delete), `group`, `topic_id`, `partition` and the call's own fields.

    Raises:
        AdminError: an argument is missing or wrong.
    """
    group, topic_id, call = _parse(arguments)
    answer: asyncio.Future[StateResponse] = asyncio.get_running_loop().create_future()

    def respond(response: StateResponse) -> None:
        if not answer.done():
            answer.set_result(response)

    request = StateRequest(group, [(topic_id, [PreviewPartition(call.partition, call)])])
    calls.handle(PREVIEW, request, respond, _CALLER)
    [(_, [(_, result)])] = await answer
    code, text, before, after = cast("PreviewResult", result)
    return {
        "before": _state(before),
        "after": _state(after),
        "error": {"code": int(code), "message": text} if code else None,
    }


def _state(state: ShareState | None) -> dict[str, Any] | None:
    """Return a state for JSON: its fields by name, batches as lists."""
    return None if state is None else state._asdict() | {"state_batches": tuple(state.state_batches)}


def _parse(arguments: Mapping[str, Any]) -> tuple[str, bytes, _Call]:
    call, group = arguments.get("call"), arguments.get("group")
    if not isinstance(call, str) or call not in _CALLS:
        raise AdminError(f"state-preview needs a `call`, one of {', '.join(_CALLS)}.")
    if not isinstance(group, str) or not group:
        raise AdminError("state-preview needs a `group`.")
    topic_id = topic_id_of(arguments.get("topic_id"))
    make = _CALLS[call]
    values: dict[str, Any] = {}
    for name in make._fields:
        value = arguments.get(name)
        values[name] = _batches(value) if name == "state_batches" else _number(name, value, _BITS.get(name, 32))
    return group, topic_id, make(**values)


def _number(name: str, value: object, bits: int) -> int:
    if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise AdminError(f"`{name}` is {value!r}; it must be a whole number of {bits} bits.")
    return value


def _batches(value: object) -> tuple[StateBatch, ...]:
    if not isinstance(value, list):
        raise AdminError(
            "`state_batches` must be a list of [first offset, last offset, delivery state, delivery count]."
        )
    return tuple(_batch(each) for each in value)


def _batch(value: object) -> StateBatch:
    if not isinstance(value, list) or len(value) != len(_BATCH_BITS):
        raise AdminError(
            f"The state batch {value!r} is not [first offset, last offset, delivery state, delivery count]."
        )
    return StateBatch(*(_number("a state batch", each, bits) for each, bits in zip(value, _BATCH_BITS, strict=True)))
