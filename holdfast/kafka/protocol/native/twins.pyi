"""The twins in C of functions that every batch and every request goes through; the head of the package says when they serve.

They are part of the build that ships. Without them the functions in Python that each names serve alone, and answer the same.
"""

from collections.abc import Iterable
from typing import TypeVar

H = TypeVar("H", bound=tuple[int, int, int, bytes | None, int])
P = TypeVar("P", bound=tuple[int, int, int, str])

def read_request_header(header: type[H], frame: bytes, /) -> H | None:
    """Twin of `frames.read_request_header_in_python`; None where there is no client id, or the frame ends in the header."""

def encode_request(
    api_key: int, api_version: int, correlation_id: int, client_id: bytes, body: bytes, has_tags: bool, /
) -> bytes | None:
    """Twin of `frames.encode_request_in_python`; None where a number is beyond its field."""

def encode_response(correlation_id: int, body: bytes, has_tags: bool, /) -> bytes | None:
    """Twin of `frames.encode_response_in_python`; None where a number is beyond its field."""

def encode_produce(topic: str, timeout_ms: int, batches: Iterable[tuple[int, bytes]], /) -> bytes | None:
    """Twin of `requests.encode_produce_in_python`, for a list of batches.

    None for any other iterable, for a topic that no broker has, and where a number is beyond its field.
    """

def decode_produced(produced: type[P], data: bytes, /) -> tuple[list[P], int] | None:
    """Twin of `requests.decode_produced`, for an answer about one topic.

    None where there are messages or errors of single records, or the answer ends too soon.
    """
