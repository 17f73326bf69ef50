"""How other nodes are reached: what is made of the files is kept until one of them changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.daemon.server.other_nodes import NodeOptions
from holdfast.kafka.errors import PropertyRefused
from tests.world.certificates import Authority

ONE, OTHER = ("h", 9001), ("h", 9002)


def test_a_context_of_tls_is_made_once_for_each_change_of_a_file(tmp_path: Path) -> None:
    authority, path = Authority(tmp_path), tmp_path / "client.properties"
    pair = authority.sign("us", "/CN=us")
    lines = (
        "security.protocol=SSL",
        f"ssl.ca.location={authority.certificate}",
        f"ssl.certificate.location={pair.certificate}",
        f"ssl.key.location={pair.key}",
    )
    path.write_text("\n".join(lines))
    options = NodeOptions(str(path))
    first, second = options.to(ONE), options.to(OTHER)
    assert (first.bootstrap, second.bootstrap) == ((ONE,), (OTHER,))
    assert first.ssl_context is second.ssl_context is not None
    known = {first.ssl_context}
    authority.sign("us", "/CN=us again")  # certificate and key under the same names
    known.add(options.to(ONE).ssl_context)
    assert len(known) == 2
    Authority(tmp_path)
    known.add(options.to(ONE).ssl_context)
    assert len(known) == 3
    path.write_text("\n".join([*lines, "ssl.endpoint.identification.algorithm=none"]))
    known.add(options.to(ONE).ssl_context)
    assert len(known) == 4
    assert options.to(OTHER).ssl_context in known


def test_what_cannot_be_read_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    options = NodeOptions(str(path))
    for _ in range(2):
        with pytest.raises(PropertyRefused, match=r"client\.properties"):
            options.to(ONE)
    path.write_text("security.protocol=PLAINTEXT")
    assert options.to(ONE).security_protocol == "PLAINTEXT"
    path.unlink()
    with pytest.raises(PropertyRefused, match=r"client\.properties"):
        options.to(ONE)


def test_without_a_file_nodes_are_reached_in_the_clear() -> None:
    options = NodeOptions("")
    assert (options.to(ONE).security_protocol, options.to(OTHER).bootstrap) == ("PLAINTEXT", (OTHER,))
