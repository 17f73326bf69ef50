"""The files of a history by day, while the job adds some, and joins others."""

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import dataset as ds
from pyarrow import fs

from holdfast.history import covered, schema

_TYPES: Final = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
_SCHEMA: Final = pa.schema([(name, _TYPES[kind]) for name, kind in schema.COLUMNS.items()])


class HistoryDays:
    """The days of one history, with their files as they are when a day is asked for first.

    A job that joins files puts their rows into a new file of the same day, and then removes them. So no row is missing from a day,
    and where a listed file is gone, the day is listed again.
    """

    def __init__(self, files: Any, path: str) -> None:  # noqa: ANN401  # a file system of pyarrow's
        """Take the file system and the directory of one state topic in it."""
        self._files = files
        self._path = path
        self._listed: dict[str, tuple[str, ...]] = {}

    def names(self) -> list[str]:
        """Return the days that have files in ascending order.

        Raises:
            OSError: they cannot be listed.
        """
        return [day for day in self.newest_first if self.paths(day)][::-1]

    @cached_property
    def newest_first(self) -> list[str]:
        """Return the days, also those without a file, in descending order.

        The job puts a batch into the earlier days first. So where days are listed in this order and a part of a batch is seen, all
        before it is too.
        """
        found = self._files.get_file_info(fs.FileSelector(self._path))
        names = [info.base_name for info in found if info.type == fs.FileType.Directory]
        return sorted((name.removeprefix(schema.DAY) for name in names if name.startswith(schema.DAY)), reverse=True)

    def paths(self, day: str) -> tuple[str, ...]:
        """Return the files of a day; raises OSError."""
        if day not in self._listed:
            self._listed[day] = self._list_day(day)
        return self._listed[day]

    def open(self, path: str) -> Any:  # noqa: ANN401  # a file of pyarrow's
        """Open a file to be read; raises OSError."""
        return self._files.open_input_file(path)

    def list_again(self, day: str) -> bool:
        """List a day again one of whose files is gone; returns whether it has other files now. Raises OSError."""
        former, self._listed[day] = self._listed[day], self._list_day(day)
        return former != self._listed[day]

    def read(self, day: str, columns: Sequence[str], condition: Any = None) -> pa.Table:  # noqa: ANN401
        """Return rows of a day.

        Args:
            day: one of `names`.
            columns: of the table.
            condition: an expression of pyarrow's; None: all rows.

        Raises:
            OSError: a file cannot be read, or is damaged.
            pa.ArrowException: the same.
        """
        for _ in range(covered.LISTS_MAX):
            try:
                return self._read_files(day, columns, condition)
            except (OSError, pa.ArrowException):
                if not self.list_again(day):
                    raise
        return self._read_files(day, columns, condition)

    def covered(self) -> dict[int, int]:
        """Return the offset by log partition, exclusive, below which every change is in the history; no entry: not known.

        Raises:
            OSError: it cannot be read.
            DamagedCovered: a file of it is damaged.
        """
        selector = fs.FileSelector(f"{self._path}/{covered.DIRECTORY}", allow_not_found=True)
        for _ in range(covered.LISTS_MAX):
            found = [
                info.path for info in self._files.get_file_info(selector) if covered.is_covered_file(info.base_name)
            ]
            # If the job has replaced a file, the next list has the newer one.
            with suppress(FileNotFoundError):
                return covered.merge_covered({path: self._read_text(path) for path in found})
        raise FileNotFoundError(f"what is listed in {covered.DIRECTORY} is not there")

    def _read_text(self, path: str) -> str:
        with self._files.open_input_stream(path) as stream:
            return bytes(stream.read()).decode(errors="replace")

    def _read_files(self, day: str, columns: Sequence[str], condition: Any) -> pa.Table:  # noqa: ANN401
        form = ds.ParquetFileFormat()
        fragments = [form.make_fragment(path, self._files) for path in self.paths(day)]
        return ds.FileSystemDataset(fragments, _SCHEMA, form, self._files).to_table(
            columns=list(columns), filter=condition
        )

    def _list_day(self, day: str) -> tuple[str, ...]:
        """Return the paths of the files of a day.

        Nothing lists a directory at one instant: a list may lack a joined file and, further on, the files that it replaces. One that
        is the same as the list before it lacks nothing.
        """
        former = self._list_once(day)
        for _ in range(covered.LISTS_MAX):
            found = self._list_once(day)
            if found == former:
                break
            former = found
        return former

    def _list_once(self, day: str) -> tuple[str, ...]:
        selector = fs.FileSelector(f"{self._path}/{schema.DAY}{day}", allow_not_found=True, recursive=True)
        infos = self._files.get_file_info(selector)
        begin = len(self._path)
        return tuple(
            sorted(info.path for info in infos if info.type == fs.FileType.File and _is_read(info.path[begin:]))
        )


def _is_read(path: str) -> bool:
    """Tell of a file below the directory of a history whether it is a part of the history."""
    return not any(part.startswith(("_", ".")) for part in path.split("/"))
