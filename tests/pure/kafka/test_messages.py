"""Which header of a message is ours."""

import pytest

from holdfast.kafka.messages import header_of


class FakeMessage:
    """A message with headers."""

    def __init__(self, headers: list[tuple[str, bytes | None]] | None) -> None:
        self._headers = headers

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        (None, None),
        ([], None),
        ([("hf", b"1")], b"1"),
        ([("other", b"1")], None),
        ([("hf", b"1"), ("other", b"2")], b"1"),
        ([("hf", b"1"), ("hf", b"2")], b"2"),
    ],
)
def test_the_last_header_of_our_name_counts(
    headers: list[tuple[str, bytes | None]] | None, found: bytes | None
) -> None:
    assert header_of(FakeMessage(headers)) == found  # type: ignore[arg-type]
