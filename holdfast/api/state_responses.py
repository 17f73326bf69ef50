"""Responses of the five share-state calls in all their versions: encoded by the daemon, decoded by the client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Any, Final

from holdfast.api.results import (
    DeleteResult,
    InitializeResult,
    PartitionResult,
    ReadResult,
    StateResponse,
    SummaryResult,
    WriteResult,
)
from holdfast.api.share_state import (
    BATCHES_PER_STEP,
    DELETE,
    INITIALIZE,
    PARTITIONS_PER_STEP,
    READ,
    SUMMARY,
    TOPIC,
    TOPIC_SIZE_MIN,
    WRITE,
    Buffer,
    expect_end,
    pack_batches,
    read_batches,
)
from holdfast.kafka.protocol.primitives import (
    MalformedBody,
    encode_string,
    encode_varint,
    read_count,
    read_nullable_string,
    skip_tags,
)
from holdfast.records.native import twins

_RESULT: Final = Struct(">ih")

_unpack_topic: Final = TOPIC.unpack_from
_pack_result: Final = _RESULT.pack


def encode_response(api_key: int, version: int, response: StateResponse) -> bytes:
    """Return the body of a response."""
    if twins is not None and api_key != SUMMARY:
        encoded = twins.encode_states(response) if api_key == READ else twins.encode_outcomes(response)
        if encoded is not None:
            return encoded
    return encode_response_in_python(api_key, version, response)


def encode_response_in_python(api_key: int, version: int, response: StateResponse) -> bytes:
    """Return the body of a response, without what is written in C."""
    encode_result = _RESULT_WRITERS[api_key, version]
    if len(response) == 1 and len(response[0][1]) == 1:
        # Counts of one, and no tags behind the share partition, the topic and the body.
        topic_id, ((partition, result),) = response[0]
        return b"\x02%b\x02%b\x00\x00" % (topic_id, encode_result(partition, result))
    parts = [encode_varint(len(response) + 1)]
    append = parts.append
    for topic_id, results in response:
        append(topic_id)
        append(encode_varint(len(results) + 1))
        for partition, result in results:
            append(encode_result(partition, result))
        append(b"\x00")
    append(b"\x00")
    return b"".join(parts)


def encode_in_steps(api_key: int, version: int, response: StateResponse) -> Iterator[bytes]:
    """Do what `encode_response` does, in steps of a millisecond or so, for a large response; each yields a piece."""
    encode_result = _RESULT_WRITERS[api_key, version]
    parts = [encode_varint(len(response) + 1)]
    done = 0
    for topic_id, results in response:
        parts.append(topic_id)
        parts.append(encode_varint(len(results) + 1))
        for partition, result in results:
            batches = result.state_batches if isinstance(result, ReadResult) else ()
            if len(batches) > BATCHES_PER_STEP:
                parts.append(_encode_read_head(partition, result))
                for start in range(0, len(batches), BATCHES_PER_STEP):
                    parts.append(pack_batches(batches[start : start + BATCHES_PER_STEP]))
                    yield b"".join(parts)
                    parts.clear()
                parts.append(b"\x00")
                continue
            parts.append(encode_result(partition, result))
            done += 1 + len(batches) * PARTITIONS_PER_STEP // BATCHES_PER_STEP
            if done >= PARTITIONS_PER_STEP:
                done = 0
                yield b"".join(parts)
                parts.clear()
        parts.append(b"\x00")
        done += 1
    parts.append(b"\x00")
    yield b"".join(parts)


def decode_response(api_key: int, version: int, data: Buffer, offset: int = 0) -> StateResponse:
    """Return the response whose body reaches from `offset` to the end of `data`.

    Raises:
        MalformedBody: the body is cut off, holds a null or a length that cannot be, or has bytes behind its end.
        KeyError: the version is not in `VERSIONS`.
    """
    read_result = _RESULT_READERS[api_key, version]
    count, offset = read_count(data, offset, TOPIC_SIZE_MIN, "Results")
    response: StateResponse = []
    try:
        for _ in range(count):
            topic_id, _ = _unpack_topic(data, offset)
            partition_count, offset = read_count(data, offset + 16, _RESULT.size + 2, "Results.Partitions")
            results: list[tuple[int, PartitionResult]] = []
            for _ in range(partition_count):
                partition, error_code = _RESULT.unpack_from(data, offset)
                error_message, offset = read_nullable_string(
                    data, offset + _RESULT.size, "Results.Partitions.ErrorMessage"
                )
                result, offset = read_result(error_code, error_message, data, offset)
                offset = skip_tags(data, offset, "Results.Partitions")
                results.append((partition, result))
            offset = skip_tags(data, offset, "Results")
            response.append((topic_id, results))
    except StructError as error:
        raise MalformedBody("Results", offset, "the bytes end in the middle of it") from error
    expect_end(data, offset)
    return response


# ---- one share partition at a time: partition, error code and error message come first in all of them ---------------

_pack_success: Final = Struct(">ihxx").pack


def _encode_outcome(partition: int, result: Any) -> bytes:  # noqa: ANN401
    if result[1] is None:
        return _pack_success(partition, result[0])
    return b"%b%b\x00" % (_pack_result(partition, result[0]), encode_string(result[1]))


def _encode_read(partition: int, result: Any) -> bytes:  # noqa: ANN401
    return b"%b%b\x00" % (_encode_read_head(partition, result), pack_batches(result[4]))


def _encode_read_head(partition: int, result: Any) -> bytes:  # noqa: ANN401
    """Return the bytes before the state batches."""
    error_code, error_message, state_epoch, start_offset, batches = result
    return b"%b%b%b%b" % (
        _pack_result(partition, error_code),
        encode_string(error_message),
        _READ_FIELDS.pack(state_epoch, start_offset),
        encode_varint(len(batches) + 1),
    )


def _writer_of_summaries(layout: str) -> Callable[[int, Any], bytes]:
    pack, end = Struct(f">{layout}x").pack, 2 + len(layout)
    return lambda partition, result: (
        b"%b%b%b" % (_pack_result(partition, result[0]), encode_string(result[1]), pack(*result[2:end]))
    )


_READ_FIELDS: Final = Struct(">iq")

_RESULT_WRITERS: Final[dict[tuple[int, int], Callable[[int, Any], bytes]]] = {
    (INITIALIZE, 0): _encode_outcome,
    (READ, 0): _encode_read,
    (WRITE, 0): _encode_outcome,
    (WRITE, 1): _encode_outcome,
    (DELETE, 0): _encode_outcome,
    (SUMMARY, 0): _writer_of_summaries("iiq"),
    (SUMMARY, 1): _writer_of_summaries("iiqi"),
}

_ResultReader = Callable[[int, str | None, Buffer, int], tuple[PartitionResult, int]]


def _reader_of_outcomes(kind: type[InitializeResult | WriteResult | DeleteResult]) -> _ResultReader:
    return lambda error_code, error_message, data, offset: (kind(error_code, error_message), offset)


def _reader_of_summaries(layout: str) -> _ResultReader:
    struct = Struct(f">{layout}")

    def read_summary(
        error_code: int, error_message: str | None, data: Buffer, offset: int
    ) -> tuple[PartitionResult, int]:
        return SummaryResult(error_code, error_message, *struct.unpack_from(data, offset)), offset + struct.size

    return read_summary


def _read_read(code: int, message: str | None, data: Buffer, offset: int) -> tuple[PartitionResult, int]:
    state_epoch, start_offset = _READ_FIELDS.unpack_from(data, offset)
    batches, offset = read_batches(data, offset + _READ_FIELDS.size)
    return ReadResult(code, message, state_epoch, start_offset, tuple(batches)), offset


_RESULT_READERS: Final[dict[tuple[int, int], _ResultReader]] = {
    (INITIALIZE, 0): _reader_of_outcomes(InitializeResult),
    (READ, 0): _read_read,
    (WRITE, 0): _reader_of_outcomes(WriteResult),
    (WRITE, 1): _reader_of_outcomes(WriteResult),
    (DELETE, 0): _reader_of_outcomes(DeleteResult),
    (SUMMARY, 0): _reader_of_summaries("iiq"),
    (SUMMARY, 1): _reader_of_summaries("iiqi"),
}
