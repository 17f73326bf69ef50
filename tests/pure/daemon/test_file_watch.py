"""Files that are read again: when they changed, when it is told, and each for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from structlog.testing import capture_logs

from holdfast.daemon.file_watch import FileWatch, look_at
from holdfast.metrics.instruments import Counter
from holdfast.metrics.registry import Registry
from tests.waiting import wait_until
from tests.world.context import make_context


def reader(read: Callable[[], None]) -> Callable[[], bool]:
    """Return what reads a file and takes it over."""

    def reload() -> bool:
        read()
        return True

    return reload


def test_a_file_is_read_again_after_each_change_and_when_it_is_told(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1")
    files, read = FileWatch(make_context()), list[str]()
    files.follow("one", lambda: [one], reader(lambda: read.append("one")))
    files.follow("two", lambda: [two], reader(lambda: read.append("two")))
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
    path, files, read = tmp_path / "file", FileWatch(make_context()), list[str]()
    path.write_text("a")
    files.follow("file", lambda: [path], reader(lambda: read.append(path.read_text())))
    (tmp_path / "new").write_text("b")
    (tmp_path / "new").replace(path)
    files.look()
    assert read == ["b"]


def test_files_that_are_read_together_are_read_once(tmp_path: Path) -> None:
    pair, read = [tmp_path / "certificate", tmp_path / "key"], list[str]()
    files = FileWatch(make_context())
    files.follow("pair", lambda: pair, reader(lambda: read.append("pair")))
    for path in pair:
        path.write_text("new")
    files.look()
    files.look()
    assert read == ["pair"]


def test_how_long_a_file_is_refused_is_shown_until_it_is_taken_over(tmp_path: Path) -> None:
    path, registry, now_ms = tmp_path / "users", Registry(), [1_000]
    files = FileWatch(make_context(registry=registry, now_ms=lambda: now_ms[0]))
    files.follow("listener.users.file", lambda: [path], lambda: path.read_text() == "right")

    def refused_s() -> float:
        return dict(registry.numbers())["holdfast_file_refusal_age_seconds{setting=listener.users.file}"]

    assert refused_s() == 0
    for text, then_s in (("wrong", 0), ("wrong again", 5), ("right", 0), ("no", 0)):
        path.write_text(text)
        files.look()
        assert refused_s() == then_s
        now_ms[0] += 5_000
    path.unlink()
    files.look()
    assert refused_s() == 5, "it is refused since the first time"


def test_a_bug_in_one_reader_does_not_end_the_watch(tmp_path: Path) -> None:
    bugs = Counter()
    files, read = FileWatch(make_context(bugs=bugs)), list[str]()

    def fail() -> bool:
        raise RuntimeError("bug")

    files.follow("one", lambda: [tmp_path / "one"], fail)
    files.follow("two", lambda: [tmp_path / "two"], reader(lambda: read.append("two")))
    with capture_logs() as lines:
        files.reload()
    assert read == ["two"]
    assert [(line["event"], line["setting"]) for line in lines] == [("file_reload_failed", "one")]
    assert bugs.value == 1


def test_a_path_that_can_be_none_is_a_file_that_is_not_there() -> None:
    assert look_at(Path("a\0b")) is None


async def test_a_bug_in_a_look_does_not_end_the_watch() -> None:
    looks = list[object]()

    def paths() -> list[Path]:
        looks.append(None)
        if len(looks) == 2:
            raise RuntimeError("bug")
        return []

    files, bugs = FileWatch(make_context()), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, bug: bugs.append(bug["exception"]))
    files.follow("file", paths, reader(lambda: None))
    with files.watched(interval_ms=1):
        await wait_until(lambda: len(looks) > 2)
    assert [repr(bug) for bug in bugs] == ["RuntimeError('bug')"]


async def test_files_are_looked_at_again_and_again_while_they_are_watched(tmp_path: Path) -> None:
    path, files, read = tmp_path / "file", FileWatch(make_context()), list[str]()
    files.follow("file", lambda: [path], reader(lambda: read.append(path.read_text())))
    with files.watched(interval_ms=1):
        for text in ("a", "ab"):
            path.write_text(text)
            await wait_until(lambda text=text: read[-1:] == [text])  # type: ignore[misc]
