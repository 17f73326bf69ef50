"""The steps of every change of a share partition's state: read, print before → after, ask where data is lost, change, read again."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdfast.client import Client, ShareStateError
from holdfast.console.commands.state.denials import query_about
from holdfast.console.confirmation import Manner, confirm, say_losses
from holdfast.console.options import find_topic_id, query_node
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.output import say
from holdfast.console.show.state_differences import Range, describe, is_same, losses, state_data, state_of
from holdfast.kafka.topic_ids import InvalidTopicId, format_topic_id
from holdfast.records.errors import InvalidKey
from holdfast.records.share.keys import SharePartitionKey, format_key
from holdfast.records.share.replay import ShareState

#: Epochs whose option must name the current one, and where a state holds that.
_CURRENT: Final = {"state_epoch": "state_epoch_fence", "leader_epoch": "leader_epoch_fence"}

#: Stands for the epoch that is current, in what is previewed; no call of the protocol can name it.
CURRENT_EPOCH: Final = -1

#: The answer of a node that finds no state; a node that answers another error may not have looked.
_NEVER_INITIALIZED: Final = "INVALID_REQUEST"


class Named(NamedTuple):
    """A share partition as the command line names it."""

    group: str
    topic: str  #: name or id
    partition: int

    def __str__(self) -> str:
        return f"{self.group}:{self.topic}:{self.partition}"


class StateChange(NamedTuple):
    """One call that changes a state."""

    call: str  #: as the admin command `state-preview` names it
    fields: Mapping[str, Any]  #: of the call
    make: Callable[[Client, SharePartitionKey, ShareState | None], Awaitable[object]]  #: given the state that was seen
    behind_offset: int = 0  #: the lowest end of the topic at which nothing of it lies beyond the end


class _Look(NamedTuple):
    """The state of a share partition before a change and after it, and the range of its topic."""

    key: SharePartitionKey
    before: ShareState | None
    after: ShareState | None  #: as it would be
    topic: Range | None  #: first offset and end; None: not requested, or not known
    problem: str  #: why the topic's end is not known; empty when it is, or was not requested


def change(named: Named, manner: Manner, wanted: StateChange, *, may_pass_end: bool = False) -> None:
    """Change a share partition's state, and print what the change does before it and what it did after it.

    Raises:
        Failure: it was refused, or there is no such share partition, or data would be lost and the user did not consent.
    """
    try:
        look = query_about(
            manner.address,
            named.group,
            named.topic,
            wanted.call,
            lambda client: _look(client, named, wanted, may_pass_end),
        )
    except (InvalidKey, InvalidTopicId) as error:
        raise Failure(str(error), Exit.WRONG_USAGE) from None
    lost = losses(look.before, look.after, look.topic)
    title = f"Share partition {format_key(look.key)} ({named.topic}):"
    if is_same(look.before, look.after):
        _tell(manner, look.before, look.before, lost)
        if look.before is None:
            raise missing(named)
        say(title)
        say(
            "Nothing changed: the state is so already, or what is there outweighs it (a higher delivery count or state)."
        )
        return
    say(title)
    for line in describe(look.before, look.after):
        say(f"  {line}")
    if not may_pass_end:
        _check_end(look, named, wanted)
    if manner.is_dry_run:
        say_losses(lost)
        _tell(manner, look.before, look.after, lost)
        say("Nothing was changed (--dry-run).")
        return
    confirm(lost, is_forced=manner.is_forced)

    async def make(client: Client) -> tuple[ShareState | None, ShareStateError | None]:
        await wanted.make(client, look.key, look.before)
        return await look_at(client, look.key)

    found, refusal = query_node(manner.address, make)
    if refusal is not None and refusal.name != _NEVER_INITIALIZED:
        say(f"Done; the state cannot be read now: {refusal}")
        found = look.after
    elif is_same(found, look.after):
        say("Done: before → after is as shown.")
    else:
        say("Done; meanwhile others changed the state too. Before → now:")
        for line in describe(look.before, found):
            say(f"  {line}")
    _tell(manner, look.before, found, lost)


async def look_at(client: Client, key: SharePartitionKey) -> tuple[ShareState | None, ShareStateError | None]:
    """Return the newest state of a share partition, raising no epoch of it, and why a Read of it would be refused."""
    answer = await _preview(client, key, "read", {"leader_epoch": CURRENT_EPOCH})
    return state_of(answer["before"]), _error_of(answer)


def missing(named: Named) -> Failure:
    """Return the failure for a share partition that has no state."""
    return Failure(
        f"The share partition {named} has no state: see whether group, topic and partition are right; "
        "`holdfast state init` makes a state.",
        Exit.NOT_FOUND,
    )


async def _look(client: Client, named: Named, wanted: StateChange, may_pass_end: bool) -> _Look:
    topic_id = await find_topic_id(client, named.topic)
    key = SharePartitionKey(named.group, topic_id, named.partition)
    answer = await _preview(client, key, wanted.call, wanted.fields)
    before, after = state_of(answer["before"]), state_of(answer["after"])
    error = _error_of(answer)
    if wanted.call in ("write", "read") and before is None and (error is None or error.name == _NEVER_INITIALIZED):
        raise missing(named)
    if error is not None:
        raise error
    if wanted.call == "write" and before is not None:
        _check_epochs(wanted.fields, before)
        _check_start_offset(wanted.fields["start_offset"], before.start_offset)
    topic, problem = None, ""
    if wanted.behind_offset > 0 and not may_pass_end:
        topic, problem = await _find_ends(client, key)
    return _Look(key, before, after, topic, problem)


def _error_of(answer: Mapping[str, Any]) -> ShareStateError | None:
    error = answer["error"]
    return None if error is None else ShareStateError(error["code"], error["message"])


async def _preview(client: Client, key: SharePartitionKey, call: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = await client.admin_of(
        key,
        "state-preview",
        call=call,
        group=key.group_id,
        topic_id=format_topic_id(key.topic_id),
        partition=key.partition,
        **fields,
    )
    return answer


async def _find_ends(client: Client, key: SharePartitionKey) -> tuple[Range | None, str]:
    topic_id = format_topic_id(key.topic_id)
    answer = await client.admin("topic-ends", topics={topic_id: [key.partition]})
    ends = answer[topic_id]["partitions"][str(key.partition)]
    if ends["problem"]:
        return None, ends["problem"]
    return (ends["first_offset"], ends["end_offset"]), ""


def _check_epochs(fields: Mapping[str, Any], before: ShareState) -> None:
    """Refuse an epoch above the current one, which the protocol lets pass; one below it the node refuses itself."""
    for name, holder in _CURRENT.items():
        current = getattr(before, holder)
        if fields[name] > current:
            option = f"--{name.replace('_', '-')}"
            raise Failure(
                f"{option} is {fields[name]}, and the current one is {current}; give that, or leave {option} out."
            )


def _check_start_offset(wanted: int, current: int) -> None:
    """Refuse a start offset that a write would leave out without a word."""
    if -1 < wanted < current:
        raise Failure(
            f"--start-offset is {wanted}, and the state begins at {current} already, which a write never takes back; "
            "`holdfast state init` begins from scratch where it is told to.",
            Exit.WRONG_USAGE,
        )


def _check_end(look: _Look, named: Named, wanted: StateChange) -> None:
    if wanted.behind_offset <= 0:
        return
    if look.topic is None:
        raise Failure(
            f"Nothing was changed, because the end of {named.topic}:{named.partition} is not known ({look.problem}), and this may "
            "lie beyond it; with --beyond-the-end it is not requested."
        )
    if wanted.behind_offset > look.topic[1]:
        raise Failure(
            f"Nothing was changed, because this decides about records that are not there yet: it reaches to offset "
            f"{wanted.behind_offset - 1}, and the next record of {named.topic}:{named.partition} gets offset {look.topic[1]}. "
            "If that is meant, give --beyond-the-end.",
            Exit.WRONG_USAGE,
        )


def _tell(manner: Manner, before: ShareState | None, after: ShareState | None, lost: Sequence[str]) -> None:
    manner.report(state_data(before), state_data(after), lost)
