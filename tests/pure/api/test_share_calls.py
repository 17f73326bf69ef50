"""The calls of share consumers come back as they were sent, and any other bytes raise one exception."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.share_fetch import FetchedPartition, ShareFetchResponse
from holdfast.kafka.protocol.primitives import MalformedBody
from tests.pure.api.share_calls import CODECS
from tests.pure.api.test_share_state import mutations


def plain(value: Any) -> Any:
    """Return a value with the records of each partition in one piece."""
    if not isinstance(value, ShareFetchResponse):
        return value
    return value._replace(topics=[(topic, [one_piece(each) for each in some]) for topic, some in value.topics])


def one_piece(fetched: FetchedPartition) -> FetchedPartition:
    return fetched._replace(records=b"".join(fetched.records))  # type: ignore[arg-type]  # to be compared alone


@pytest.mark.parametrize("name", CODECS)
@given(data=st.data(), head=st.binary(max_size=3))
def test_a_value_comes_back_as_it_was_sent(name: str, data: Any, head: bytes) -> None:
    codec = CODECS[name]
    value = data.draw(codec.values)
    encoded = codec.encode(value)
    assert plain(codec.decode(head + encoded, len(head))) == plain(value)


@pytest.mark.parametrize("name", CODECS)
def test_a_sample_comes_back_with_its_types(name: str) -> None:
    codec = CODECS[name]
    decoded = codec.decode(codec.encode(codec.sample), 0)
    assert plain(decoded) == plain(codec.sample)
    assert type(decoded) is type(codec.sample)


@pytest.mark.parametrize("name", CODECS)
def test_mutated_samples_raise_malformed_body_or_decode(name: str) -> None:
    codec, source, refused = CODECS[name], random.Random(name), 0
    for data in mutations(codec.encode(codec.sample), source, 1_500):
        try:
            codec.decode(data, 0)
        except MalformedBody:
            refused += 1
    assert refused > 300


@pytest.mark.parametrize("name", CODECS)
def test_every_cut_and_every_trailing_byte_is_refused(name: str) -> None:
    codec = CODECS[name]
    sample = codec.encode(codec.sample)
    for length in range(len(sample)):
        with pytest.raises(MalformedBody):
            codec.decode(sample[:length], 0)
    with pytest.raises(MalformedBody):
        codec.decode(sample + b"\x00", 0)
