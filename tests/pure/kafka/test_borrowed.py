"""What we rely on in other libraries without a promise of theirs; a new version that changes it fails here first."""

import ast
import asyncio
import errno
import socket
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest
from aiokafka.errors import IllegalSaslStateError  # type: ignore[import-untyped]  # it ships no types
from packaging.requirements import Requirement

from holdfast.kafka import aiokafka_parts, librdkafka_types
from holdfast.kafka.aiokafka_parts import make_batch_builder, open_transport, read_batch
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from tests.pure.kafka.brokers.metadata_brokers import Broker, listening

#: The sources, also where the compiled build is tested.
ROOT = Path(__file__).parents[3]
HOUSE = ROOT / "holdfast"
PLAIN = ConnectionOptions(bootstrap=(("127.0.0.1", 1),), client_id="me")
TIMEOUT_MS = 10_000
#: Of a record batch.
HEAD_BYTES = 61


#: Libraries of which we use what is no promise of a version, and what that is.
BORROWED = {
    "aiokafka": "its connection with its versions and its logins, and its record batches",
    "asn1crypto": "the fields that it knows of a certificate, for a name in the bytes that it has",
    "confluent-kafka": "the modules of the types that its admin client takes and gives",
    "cramjam": "the errors by which it says that there is too little room",
    "kio": "all of it, below version 1",
    "scramp": "its SASLprep, and that each of its messages is refused with one exception",
    "starlette": "the exceptions and the scope of a request, under a server of ours",
    "structlog": "the fields by which its formatter knows lines of others",
    "uvicorn": "its protocol of one connection and the state of a server, without its server",
}
REQUIRED = {
    each.name: each
    for each in map(Requirement, tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
}


@cache
def imported_by_us() -> Mapping[str, set[str]]:
    """Return the modules that ours import, with what is taken of each, and which of ours do."""
    found: dict[str, set[str]] = {}
    for path in HOUSE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{each.name}" for each in node.names)]
            for name in names:
                found.setdefault(name, set()).add(path.relative_to(HOUSE).as_posix())
    return found


def importers(is_private: Any) -> set[str]:
    """Return our modules that import a module of which `is_private` says so."""
    return {path for name, paths in imported_by_us().items() if is_private(name) for path in paths}


@pytest.mark.parametrize("package", BORROWED)
def test_what_is_borrowed_has_an_upper_bound_and_what_is_installed_lies_below(package: str) -> None:
    bounds = REQUIRED[package].specifier
    assert any(bound.operator == "<" for bound in bounds), f"{package}: {BORROWED[package]}"
    assert bounds.contains(version(package), prereleases=True)


def test_no_inner_part_of_a_library_is_used_without_an_upper_bound() -> None:
    ours = {"holdfast", *sys.stdlib_module_names}

    def is_private(name: str) -> bool:
        first, *others = name.split(".")
        return first not in ours and any(part.startswith("_") for part in others)

    borrowed = {name.replace("-", "_") for name in BORROWED}
    assert {name.split(".")[0] for name in imported_by_us() if is_private(name)} <= borrowed
    assert {name.split(".")[0] for name in imported_by_us()} >= borrowed, "each of them is used"


def test_one_module_imports_aiokafka() -> None:
    assert importers(lambda name: name.split(".")[0] == "aiokafka") == {"kafka/aiokafka_parts.py"}


def test_one_module_imports_what_librdkafka_does_not_export() -> None:
    def is_private(name: str) -> bool:
        return name.startswith(("confluent_kafka.admin._", "confluent_kafka.cimpl"))

    assert importers(is_private) == {"kafka/librdkafka_types.py"}


@pytest.mark.parametrize("name", ["ConfigResource", "NewTopic", "OffsetSpec", "ResourceType", "TopicDescription"])
def test_the_types_of_librdkafka_are_those_that_its_client_takes_and_gives(name: str) -> None:
    assert getattr(librdkafka_types, name) is getattr(confluent_kafka.admin, name)


async def test_an_opened_transport_says_what_the_broker_speaks_and_is_ours_to_use() -> None:
    broker = Broker()
    async with listening(broker) as port:
        opened = await open_transport(("127.0.0.1", port), PLAIN, TIMEOUT_MS)
        assert opened.versions[3][0] <= 12 <= opened.versions[3][1]
        received = asyncio.Event()

        class Ours(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                received.set()

        opened.transport.set_protocol(Ours())
        opened.transport.write(bytes.fromhex("0000000f 0003 000c 00000001 0002 6d65 00 01 00 00 00".replace(" ", "")))
        await received.wait()
        opened.close()
        assert opened.transport.is_closing()


async def test_nobody_there_is_a_failed_connection() -> None:
    with pytest.raises(ConnectionFailed, match=r"^127\.0\.0\.1:1 cannot be reached: Connection refused$"):
        await open_transport(("127.0.0.1", 1), PLAIN, TIMEOUT_MS)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(errno.EHOSTUNREACH, "Connect call failed ('10.0.0.1', 1)"), "No route to host"),
        (
            OSError(
                "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), "
                "[Errno 111] Connect call failed ('127.0.0.1', 1)"
            ),
            "Connection refused",
        ),
        (
            OSError("Multiple exceptions: [Errno 101] Connect call failed (), [Errno 111] Connect call failed ()"),
            "Network is unreachable, Connection refused",
        ),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (ConnectionResetError(), "the connection was closed in the TLS handshake, as by a port without TLS"),
        (
            IllegalSaslStateError("<AIOKafkaConnection>"),
            "nobody logs in there; set security.protocol to PLAINTEXT or SSL",
        ),
    ],
    ids=["no route", "two addresses", "two reasons", "no name", "no TLS", "no logins"],
)
async def test_why_a_broker_cannot_be_reached_is_in_plain_words(
    monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("holdfast.kafka.aiokafka_parts.dial", fail)
    with pytest.raises(ConnectionFailed) as caught:
        await open_transport(("b", 1), PLAIN, TIMEOUT_MS)
    assert str(caught.value) == f"b:1 cannot be reached: {why}"


async def test_a_broker_that_is_silent_is_said_to_be() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ConnectionFailed, match=rf":{port} cannot be reached: no answer in 20 ms$"):
            await open_transport(("127.0.0.1", port), PLAIN, 20)


def test_a_batch_has_kafkas_layout_and_reads_back() -> None:
    builder = make_batch_builder(0, 10_000)
    for number in range(2):
        builder.append(number, 1_000, b"k%d" % number, None if number else b"v", [("hf", b"h%d" % number)])
    data = bytes(builder.build())
    assert (data[:8], data[16], int.from_bytes(data[8:12], "big")) == (bytes(8), aiokafka_parts.MAGIC, len(data) - 12)
    assert int.from_bytes(data[23:27], "big") == 1, "the offset of the last record in the batch"
    assert int.from_bytes(data[57:HEAD_BYTES], "big") == 2, "records"
    batch = read_batch(data)
    assert batch.validate_crc()
    assert [(each.offset, each.key, each.value, each.headers) for each in batch] == [
        (0, b"k0", b"v", [("hf", b"h0")]),
        (1, b"k1", None, [("hf", b"h1")]),
    ]


def test_a_checksum_shows_a_batch_that_was_changed() -> None:
    builder = make_batch_builder(0, 10_000)
    builder.append(0, 1_000, b"k", b"v", [])
    data = bytearray(builder.build())
    data[-1] ^= 1
    assert not read_batch(bytes(data)).validate_crc()


def test_no_bytes_are_no_batch() -> None:
    assert read_batch(b"") is None


@pytest.mark.parametrize("compression", range(1, 5))
def test_every_codec_of_kafka_is_there(compression: int) -> None:
    builder = make_batch_builder(compression, 10_000)
    builder.append(0, 1_000, b"k", bytes(1_000), [])
    data = bytes(builder.build())
    assert len(data) < 500
    assert [each.value for each in read_batch(data)] == [bytes(1_000)]


@pytest.mark.parametrize("size", [-1, (1 << 18) + 1, (1 << 31) - 1])
async def test_what_a_broker_announces_before_a_login_is_bounded_and_no_traceback(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(size.to_bytes(4, "big", signed=True) + bytes(100))
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionFailed, match=rf"cannot be reached: .*it announced an answer of {size} bytes$"):
            await open_transport(("127.0.0.1", port), PLAIN, TIMEOUT_MS)
    assert not caplog.records


async def test_bytes_that_are_no_answer_before_a_login_are_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.read(1_000)
        writer.write((9).to_bytes(4, "big") + asked[8:12] + b"\0\0\x7f\xff\xff")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionFailed, match=f"^127.0.0.1:{port} cannot be reached: "):
            await open_transport(("127.0.0.1", port), PLAIN, TIMEOUT_MS)
    assert not caplog.records


@pytest.mark.parametrize(
    "address", [("127.0.0.1", -1), ("127.0.0.1", 0), ("127.0.0.1", 70_000), ("a\0b", 1), ("a" * 70, 1)]
)
async def test_an_address_that_cannot_be_one_is_a_failed_connection(address: tuple[str, int]) -> None:
    with pytest.raises(ConnectionFailed, match="cannot be reached"):
        await open_transport(address, PLAIN, TIMEOUT_MS)
