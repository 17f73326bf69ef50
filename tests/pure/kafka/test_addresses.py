"""`host:port`, and what only looks like it."""

import pytest

from holdfast.kafka.addresses import find_host, format_address, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [("[::1]:80", ("::1", 80)), ("node-1.example:0", ("node-1.example", 0)), ("host:65535", ("host", 65_535))],
)
def test_an_address_is_host_and_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == parse_address(text, 9_092) == address
    assert format_address(*address) == text
    assert find_host(text) == address[0]


@pytest.mark.parametrize(
    "text", ["", "host:", ":80", "host:65536", "host:-1", "::1:80", "host:x", "host:９", "[]:1", "[::1:1", "::1]:1"]
)
def test_what_is_none_is_refused(text: str) -> None:
    for default_port in (None, 9_092):
        with pytest.raises(ValueError, match="it must be host:port, as in"):
            parse_address(text, default_port)
    assert find_host(text) == text


@pytest.mark.parametrize(("text", "host"), [("host", "host"), ("[::2]", "::2")])
def test_the_port_may_be_left_out_where_there_is_a_default(text: str, host: str) -> None:
    assert parse_address(text, 9_092) == (host, 9_092)
    with pytest.raises(ValueError, match="it must be host:port"):
        parse_address(text)
