"""A bundle of what others need to find out what is wrong: gathered part by part, without secrets, written whole or not at all."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.hidden_texts import hide

_CUT: Final = b"\n(cut: the bundle has no room for the rest)\n"


def gather(
    parts: Mapping[str, Callable[[], object]], secrets: Iterable[str], explain: Callable[[Exception], str]
) -> dict[str, bytes]:
    """Return the files of a bundle by name.

    Args:
        parts: by name of the file, what gives its content: text, lines, or data for JSON.
        secrets: stand in no file, wherever they come from.
        explain: says why a part could not be had, which then stands in its place in `NAME.missing.txt`.
    """
    files: dict[str, bytes] = {}
    for name, part in parts.items():
        try:
            files[name] = _to_text(name, hide(part(), secrets)).encode()
        except Exception as error:  # a part that cannot be had is a file that says why, and the others are had
            files[f"{name}.missing.txt"] = _to_text(name, hide(f"{explain(error)}\n", secrets)).encode()
    return files


def try_place(path: Path) -> None:
    """See whether a bundle can be written at a path, by a file beside it that is gone afterwards.

    Raises:
        FileExistsError: there is such a file.
        OSError: it cannot be written.
    """
    if os.path.lexists(path):
        raise FileExistsError
    descriptor, temporary = _begin(path)
    os.close(descriptor)
    os.unlink(temporary)


def write(path: Path, files: Mapping[str, bytes], bytes_max: int) -> int:
    """Write a bundle as tar.gz that its owner alone reads, and return its size in bytes; there is all of it, or nothing.

    Files that exceed the bound of all together, in bytes before they are packed, are cut, the later ones first.

    Raises:
        FileExistsError: there is such a file.
        OSError: it cannot be written.
    """
    room = bytes_max
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            kept = content if len(content) <= room else content[: max(0, room - len(_CUT))] + _CUT
            room = max(0, room - len(content))
            entry = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}")
            entry.size, entry.mode, entry.mtime = len(kept), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(kept))
    _write_whole(path, packed.getbuffer())
    return packed.tell()


def _write_whole(path: Path, content: memoryview) -> None:
    descriptor, temporary = _begin(path)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(temporary, path)  # unlike a renaming, it replaces nothing
    finally:
        os.unlink(temporary)


def _begin(path: Path) -> tuple[int, str]:
    # Its mode is 0600 from the beginning.
    return tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")


def _to_text(name: str, content: object) -> str:
    if isinstance(content, str):
        return content
    if name.endswith(".txt") and isinstance(content, (list, tuple)):
        return "".join(f"{line}\n" for line in content)
    return json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n"


def stacks_text(process: Mapping[str, Any]) -> str:
    """Return the stacks of what the admin command `debug` answers, as text."""
    parts = [f"=== thread {name}\n{stack}" for name, stack in process["threads"].items()]
    parts += [f"=== task {task['name']}\n{task['stack']}" for task in process["tasks"]]
    if process["tasks_left_out"]:
        parts.append(f"=== {process['tasks_left_out']} more tasks\n")
    return "\n".join(parts)
