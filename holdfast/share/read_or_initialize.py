"""The decision of a leader's first call: a Read, or an Initialize and a Read in one record where there is no state.

It is made of the decisions of these calls, so its checks and texts are theirs.
"""

from typing import Final

from holdfast.api.results import ReadOrInitializeResult, ReadResult
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.state_machine import Decision
from holdfast.share.decisions import ShareShard

#: State epoch of a new state; of a deleted one the log keeps no number. An epoch of a group is 1 or more in Kafka, so one that a group
#: coordinator gives later is not below this one.
FIRST_STATE_EPOCH: Final = 1

_NO_STATE: Final = ReadOrInitializeResult()


def decide_read_or_initialize(
    machine: ShareShard, key: SharePartitionKey, leader_epoch: int, start_offset: int | None, now_ms: int
) -> Decision:
    """Decide what a leader is answered; without a state one is made at `start_offset`, unless that is None.

    A new state has the leader epoch as its fence from its first record on.
    """
    if start_offset is not None and start_offset < 0:
        text = f"The start offset is {start_offset}; it must be 0 or more."
        return Decision((), ReadOrInitializeResult(ErrorCode.INVALID_REQUEST, text), is_malformed=True)
    if machine.state.newest(key) is not None or key.partition < 0 or leader_epoch < 0:
        read = machine.decide_read(key, leader_epoch, now_ms)
        return read._replace(response=_answer(read.response))
    if start_offset is None:
        looked_up = machine.decide_summary(key)
        return looked_up._replace(response=_refusal(looked_up) or _NO_STATE)
    made = machine.decide_initialize(key, FIRST_STATE_EPOCH, start_offset, now_ms)
    refusal = _refusal(made)
    if refusal is not None:
        return made._replace(response=refusal)
    [(_, snapshot)] = made.records
    fenced = snapshot._replace(leader_epoch=leader_epoch, leader_epoch_fence=leader_epoch)
    return Decision(
        ((key, fenced),), ReadOrInitializeResult(0, None, FIRST_STATE_EPOCH, start_offset, (), has_state=True)
    )


def _answer(read: ReadResult) -> ReadOrInitializeResult:
    return ReadOrInitializeResult(*read, has_state=not read.error_code)


def _refusal(decision: Decision) -> ReadOrInitializeResult | None:
    """Return the refusal of a decision as one of this call, None where it refuses nothing."""
    code, text = decision.response[:2]
    return ReadOrInitializeResult(code, text) if code else None
