"""A bundle: all of its parts or why one is missing, no secret, and a file that is there whole or not at all."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path
from typing import Final

import pytest

from holdfast.console.doctor.bundle import gather, stacks_text, write
from holdfast.daemon.settings.file_env_flags import describe
from holdfast.daemon.settings.secrets import secrets_of
from holdfast.node_settings import load_settings

#: Properties that hold secrets, of librdkafka and of Spark, in any spelling.
PLANTED: Final = {
    name: f"planted-{number}-ö\"'\\"
    for number, name in enumerate(
        (
            "kafka.sasl.password",
            "kafka.ssl.key.password",
            "kafka.ssl.key.pem",
            "kafka.ssl.keystore.password",
            "kafka.sasl.oauthbearer.client.secret",
            "kafka.sasl.oauthbearer.config",
            "kafka.sasl.jaas.config",
            "spark.ssl.keyPassword",
            "spark.ssl.trustStorePassword",
            "spark.authenticate.secret",
            "spark.hadoop.fs.s3a.secret.key",
            "spark.hadoop.fs.s3a.session.token",
            "spark.hadoop.fs.azure.account.key.shop.dfs.core.windows.net",
        )
    )
}


def unpacked(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        files = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {name: file.read() for name, file in files.items() if file is not None}


def test_no_secret_of_any_setting_stands_in_a_bundle_wherever_it_comes_from(tmp_path: Path) -> None:
    settings = load_settings(flags={"kafka.bootstrap.servers": "a:1", **PLANTED}).settings
    files = gather(
        {
            "settings.json": lambda: describe(settings),
            "log-lines.txt": lambda: [f"refused: {value}" for value in PLANTED.values()],
            "data.json": lambda: {"lines": [json.dumps({"why": value}) for value in PLANTED.values()]},
            "raised.json": lambda: (_ for _ in ()).throw(ValueError(f"no {PLANTED['kafka.sasl.password']}")),
        },
        secrets_of(settings),
        str,
    )
    write(tmp_path / "b.tar.gz", files, 10**6)
    for name, content in unpacked(tmp_path / "b.tar.gz").items():
        assert b"planted" not in content, name
    assert files["log-lines.txt"].decode().splitlines() == ["refused: (hidden)"] * len(PLANTED)
    shown = json.loads(files["settings.json"])
    assert {name: shown[name] for name in PLANTED} == dict.fromkeys(PLANTED, "(hidden)")


def test_a_part_that_cannot_be_had_is_a_file_that_says_why() -> None:
    def absent() -> object:
        raise OSError("nobody answers")

    files = gather({"status.json": absent, "about.json": lambda: {"version": 1}}, [], str)
    assert files == {"status.json.missing.txt": b"nobody answers\n", "about.json": b'{\n  "version": 1\n}\n'}


def test_a_bundle_is_of_its_owner_alone_and_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    size = write(path, {"a.txt": b"1", "b.txt": b"2"}, 100)
    assert path.stat().st_size == size
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert unpacked(path) == {"b/a.txt": b"1", "b/b.txt": b"2"}
    with pytest.raises(FileExistsError):
        write(path, {"a.txt": b"3"}, 100)
    assert [each.name for each in tmp_path.iterdir()] == ["b.tar.gz"]
    assert unpacked(path)["b/a.txt"] == b"1"


def test_a_bundle_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "b.tar.gz", {"a.txt": b"1"}, 100)
    assert list(tmp_path.iterdir()) == []


def test_what_exceeds_the_bound_is_cut_and_says_so(tmp_path: Path) -> None:
    write(tmp_path / "b.tar.gz", {"a.txt": b"x" * 90, "b.txt": b"y" * 500, "c.txt": b"z" * 500}, 200)
    files = unpacked(tmp_path / "b.tar.gz")
    assert files["b/a.txt"] == b"x" * 90
    assert len(files["b/b.txt"]) == 110
    assert files["b/b.txt"].endswith(b"no room for the rest)\n")
    assert files["b/c.txt"].strip().startswith(b"(cut")


def test_stacks_are_text() -> None:
    process = {
        "threads": {"MainThread (1)": "  File a\n"},
        "tasks": [{"name": "holdfast-tick", "stack": "  File b\n"}],
        "tasks_left_out": 3,
    }
    assert stacks_text(process) == (
        "=== thread MainThread (1)\n  File a\n\n=== task holdfast-tick\n  File b\n\n=== 3 more tasks\n"
    )
    assert stacks_text(process | {"tasks_left_out": 0}).endswith("File b\n")
