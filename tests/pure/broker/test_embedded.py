"""What the file system refuses an embedded cluster, and what stays of the cluster then."""

from __future__ import annotations

import resource
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.broker import BrokerError, EmbeddedKafka, kafka_broker
from holdfast.broker.kafka_broker import BrokerNode


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file of this process grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_directory_that_cannot_be_made_is_named_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BrokerError) as refused:
        EmbeddedKafka(data_dir=tmp_path / "file" / "kafka").start()
    assert str(refused.value) == (
        f"{tmp_path}/file/kafka cannot be made, read or written (Not a directory); make room there and see that this user "
        "may write it, or name another directory by --data-dir."
    )


def test_where_no_temporary_directory_can_be_made_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    with pytest.raises(BrokerError, match=r"^/nonexistent/\S+ cannot be made, read or written \(No such file"):
        EmbeddedKafka()


def test_a_full_disk_takes_no_cluster_its_id(tmp_path: Path) -> None:
    EmbeddedKafka(data_dir=tmp_path)._remember()
    kafka = EmbeddedKafka(data_dir=tmp_path)
    with (
        full_disk(),
        pytest.raises(BrokerError, match=rf"^{tmp_path} cannot be made, read or written \(File too large\)"),
    ):
        kafka.start()
    assert EmbeddedKafka(data_dir=tmp_path).cluster_id == kafka.cluster_id


def test_a_broker_that_could_not_be_found_again_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Spawning(BrokerNode):
        def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
            started.append(subprocess.Popen(["sleep", "60"]))
            return started[0]

    monkeypatch.setattr(kafka_broker, "find_java", lambda: "java")
    monkeypatch.setattr(kafka_broker, "kafka_home", lambda _: tmp_path)
    (tmp_path / "kafka.pid").symlink_to(tmp_path / "missing" / "kafka.pid")
    with pytest.raises(FileNotFoundError):
        Spawning(1, tmp_path).launch({}, (), outlives_us=True)
    assert started[0].returncode is not None
