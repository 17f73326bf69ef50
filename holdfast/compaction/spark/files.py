"""Small files and whole directories on whatever file system Hadoop finds behind a path."""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession


class Directory:
    """A directory, local or behind any URI that Hadoop knows; a path without a scheme is a local one.

    Args:
        spark: whose Hadoop is used.
        path: absolute path or URI.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        java_context: Any = spark.sparkContext._jsc
        self.path = path.rstrip("/")
        self._files: Any = self._path("").getFileSystem(java_context.hadoopConfiguration())

    def prepare(self) -> None:
        """Create the directory where there is none, and check that files can be written to it.

        Raises:
            OSError: they cannot.
            Py4JJavaError: they cannot, as Hadoop reports it.
        """
        probe = f"_probe-{uuid4().hex}"
        self._files.mkdirs(self._path(""))
        self._files.create(self._path(probe), True).close()
        if not self._files.delete(self._path(probe), False):
            raise OSError(f"{self.path}/{probe} cannot be removed.")

    def exists(self, name: str = "") -> bool:
        """Tell whether there is a file or directory of that name below this one."""
        return bool(self._files.exists(self._path(name)))

    def reaches(self, path: str) -> bool:
        """Tell whether there is something at a whole path; not where it names another file system."""
        try:
            return bool(self._files.exists(self._jvm.org.apache.hadoop.fs.Path(path)))
        except IllegalArgumentException:
            return False

    def directories(self, name: str = "") -> list[str]:
        """Return the names of the directories in one below this one, sorted; none when there is no such directory."""
        return self._list(name, are_directories=True)

    def files(self, name: str = "") -> list[str]:
        """Return the names of the files in a directory below this one, sorted; none when there is no such directory."""
        return self._list(name, are_directories=False)

    def sizes(self, name: str = "") -> dict[str, int]:
        """Return the files in a directory below this one, by name with their bytes; none when there is no such directory."""
        if not self.exists(name):
            return {}
        listed = self._files.listStatus(self._path(name))
        return {found.getPath().getName(): int(found.getLen()) for found in listed if not found.isDirectory()}

    def sync(self, name: str) -> None:
        """Let a file that is closed survive a power cut; only a local file system needs to be asked.

        Raises:
            OSError: the file system refuses.
        """
        if self._files.getUri().getScheme() != "file":
            return
        path = PurePath(self._path(name).toUri().getPath())
        for synced in (path, path.parent):
            descriptor = os.open(synced, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def remove(self, name: str = "") -> None:
        """Remove a file or a directory with all in it, if there is one."""
        self._files.delete(self._path(name), True)

    def move(self, source: str, target: str) -> None:
        """Give a file or directory below this one another name; nothing has that name yet, so no reader loses anything.

        Raises:
            OSError: something has that name, or the file system refuses.
        """
        if self.exists(target):
            raise OSError(f"{self.path}/{target} is there already.")
        self._files.mkdirs(self._path(target).getParent())
        if not self._files.rename(self._path(source), self._path(target)):
            raise OSError(f"{self.path}/{source} cannot be renamed to {target}.")

    def read_text(self, name: str) -> str | None:
        """Return what a file holds, None if there is none.

        Raises:
            ValueError: it does not agree with its checksum.
        """
        try:
            stream = self._files.open(self._path(name))
        except Py4JJavaError as error:
            if _is_a(error, "FileNotFoundException"):
                return None
            raise
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        except Py4JJavaError as error:
            if _is_a(error, "ChecksumException"):
                raise ValueError("it does not agree with its checksum") from None
            raise
        finally:
            stream.close()

    def create(self, name: str) -> JavaFile:
        """Open a file that is not there yet, for bytes to be written one after the other; a reader may see a part of it."""
        return JavaFile(self._files.create(self._path(name), False))

    def write_text(self, name: str, text: str) -> None:
        """Write a file that is not there yet; it appears whole or not at all.

        Raises:
            OSError: it is there already, or the file system refuses.
        """
        directory, _, last = name.rpartition("/")
        partial = f"{directory}/_{last}.partial".removeprefix("/")
        try:
            stream = self._files.create(self._path(partial), True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()
            self.move(partial, name)
        except (Py4JJavaError, OSError):
            self.remove(partial)
            raise

    def _list(self, name: str, *, are_directories: bool) -> list[str]:
        if not self.exists(name):
            return []
        return sorted(
            found.getPath().getName()
            for found in self._files.listStatus(self._path(name))
            if found.isDirectory() is are_directories
        )

    def _path(self, name: str) -> Any:  # noqa: ANN401  # an object of the JVM
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.path}/{name}" if name else self.path)


class JavaFile:
    """A file of Hadoop's that is being written, with the calls of one of Python's that Arrow makes."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401  # an object of the JVM
        self._stream = stream
        self.closed = False

    def write(self, data: bytes) -> int:
        """Write all of it, which is a call of Java."""
        self._stream.write(bytearray(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing: only a file that is closed is used."""

    def close(self) -> None:
        """Write what Hadoop still holds; a second time does nothing."""
        if not self.closed:
            self.closed = True
            self._stream.close()


def _is_a(error: Py4JJavaError, name: str) -> bool:
    return name in error.java_exception.getClass().getName()
