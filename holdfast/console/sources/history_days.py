"""The files of a history by day, while the job adds some, and joins others."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import dataset as ds
from pyarrow import fs

from holdfast.compaction.history import coverage, schema

_TYPES: Final = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
_SCHEMA: Final = pa.schema([(name, _TYPES[kind]) for name, kind in schema.COLUMNS.items()])


class HistoryDays:
    """The days of one history, with their files as they are when the first day is asked for.

    A job that joins files puts their rows into a new file of the same day, and then removes them. So no row is missing from a day,
    and where a listed file is gone, the day is listed again.
    """

    def __init__(self, files: Any, path: str) -> None:  # noqa: ANN401  # a file system of pyarrow's
        """Take the file system and the directory of one state topic in it."""
        self._files = files
        self._path = path

    def names(self) -> list[str]:
        """Return the days in ascending order.

        Raises:
            OSError: they cannot be listed.
        """
        return sorted(self._listed)

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
        for _ in range(coverage.LISTS_MAX):
            try:
                return self._read_files(day, columns, condition)
            except (OSError, pa.ArrowException):
                former, self._listed[day] = self._listed[day], self._list_day(day)
                if former == self._listed[day]:
                    raise
        return self._read_files(day, columns, condition)

    def _read_files(self, day: str, columns: Sequence[str], condition: Any) -> pa.Table:  # noqa: ANN401
        form = ds.ParquetFileFormat()
        fragments = [form.make_fragment(path, self._files) for path in self._listed[day]]
        return ds.FileSystemDataset(fragments, _SCHEMA, form, self._files).to_table(
            columns=list(columns), filter=condition
        )

    @cached_property
    def _listed(self) -> dict[str, tuple[str, ...]]:
        """Return the paths of the files of each day."""
        found = self._files.get_file_info(fs.FileSelector(self._path))
        names = [info.base_name for info in found if info.type == fs.FileType.Directory]
        days = [name.removeprefix(schema.DAY) for name in names if name.startswith(schema.DAY)]
        # The job puts a batch into the earlier days first. So where a part of one is seen, all before it is too.
        listed = {day: self._list_day(day) for day in sorted(days, reverse=True)}
        return {day: paths for day, paths in listed.items() if paths}

    def _list_day(self, day: str) -> tuple[str, ...]:
        """Return the paths of the files of a day.

        Nothing lists a directory at one instant: a list may lack a joined file and, further on, the files that it replaces. One that
        is the same as the list before it lacks nothing.
        """
        former = self._list_once(day)
        for _ in range(coverage.LISTS_MAX):
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
