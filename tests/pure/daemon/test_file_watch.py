"""Files that are read again: when they changed, when it is told, and each for itself."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.metrics.registry import Counter
from tests.waiting import wait_until


def test_a_file_is_read_again_after_each_change_and_when_it_is_told(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1")
    files, read = FileWatch(InternalErrors(Counter())), list[str]()
    files.follow(one, lambda: read.append("one"))
    files.follow(two, lambda: read.append("two"))
    files.look()
    assert read == []
    two.write_text("there now")
    files.look()
    files.look()
    assert read == ["two"]
    one.write_text("longer")
    two.unlink()
    files.look()
    assert read == ["two", "one", "two"]
    files.reload()
    files.look()
    assert read[3:] == ["one", "two"]


def test_a_file_that_is_replaced_by_one_as_long_is_read_again(tmp_path: Path) -> None:
    path, files, read = tmp_path / "file", FileWatch(InternalErrors(Counter())), list[str]()
    path.write_text("a")
    files.follow(path, lambda: read.append(path.read_text()))
    (tmp_path / "new").write_text("b")
    (tmp_path / "new").replace(path)
    files.look()
    assert read == ["b"]


def test_a_bug_in_one_reader_does_not_end_the_watch(tmp_path: Path) -> None:
    bugs = Counter()
    files, read = FileWatch(InternalErrors(bugs)), list[str]()

    def fail() -> None:
        raise RuntimeError("bug")

    files.follow(tmp_path / "one", fail)
    files.follow(tmp_path / "two", lambda: read.append("two"))
    with capture_logs() as lines:
        files.reload()
    assert read == ["two"]
    assert [(line["event"], line["file"]) for line in lines] == [("file_reload_failed", str(tmp_path / "one"))]
    assert bugs.value == 1


async def test_files_are_looked_at_again_and_again_while_they_are_watched(tmp_path: Path) -> None:
    path, files, read = tmp_path / "file", FileWatch(InternalErrors(Counter())), list[str]()
    files.follow(path, lambda: read.append(path.read_text()))
    with files.watched(interval_ms=1):
        for text in ("a", "ab"):
            path.write_text(text)
            await wait_until(lambda text=text: read[-1:] == [text])  # type: ignore[misc]
