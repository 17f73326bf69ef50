"""The place to which the job writes histories, as a user names it, and the history of one state topic in it."""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import fs

from holdfast.history.days import HistoryDays
from holdfast.kafka.topic_ids import format_topic_id

_ID_NAME: Final = "state_topic_id="

#: Hadoop's scheme of a store to the one of pyarrow; schemes that both share are here too.
SCHEMES: Final = {
    "file": "file",
    "s3a": "s3",
    "s3n": "s3",
    "s3": "s3",
    "abfs": "abfs",
    "abfss": "abfss",
    "gs": "gs",
    "hdfs": "hdfs",
}
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")


class HistoryProblem(Exception):
    """A history that cannot be read; the text is a sentence, or several."""


class Unusable(HistoryProblem):
    """The place is named by no URI that can be read, because of its scheme or its form."""


class Missing(HistoryProblem):
    """There is no history, or none of the state topic."""


class HistoryPlace:
    """A directory, or a URI of one of `SCHEMES`."""

    def __init__(self, uri: str, named_by: str = "--history-dir") -> None:
        """List the histories.

        Args:
            uri: the place.
            named_by: the option or the setting that names it.

        Raises:
            HistoryProblem: there is no history, or it cannot be read.
        """
        self.uri = uri
        self.named_by = named_by
        try:
            self.files, path = self._file_system()
            found = self.files.get_file_info(fs.FileSelector(path))
        except FileNotFoundError:
            raise self._no_history("nothing is there") from None
        except NotADirectoryError:
            raise self._no_history("it is a file") from None
        except (OSError, pa.ArrowException) as error:
            text = f"The history at {named_by} {uri} cannot be read: {error}; make it readable, or name another place."
            raise HistoryProblem(text) from None
        #: directory of each state topic, by its id as text
        self.topics: dict[str, str] = {
            info.base_name.removeprefix(_ID_NAME): info.path for info in found if info.base_name.startswith(_ID_NAME)
        }
        if not self.topics:
            raise self._no_history(f"it holds no directory {_ID_NAME}…")

    def days(self, state_topic_id: bytes) -> HistoryDays:
        """Return the history of a state topic.

        Raises:
            Missing: there is none of it.
        """
        name = format_topic_id(state_topic_id)
        if name not in self.topics:
            raise Missing(
                f"The history at {self.uri} has nothing about this state topic, whose id is {name}, but about "
                f"{', '.join(sorted(self.topics))}"
            )
        return HistoryDays(self.files, self.topics[name])

    def _file_system(self) -> tuple[Any, str]:
        """Return the file system that has the place, and its path in it."""
        found = _SCHEME.match(self.uri)
        if found is None:
            return fs.LocalFileSystem(), self.uri
        scheme = found[1].lower()
        try:
            file_system, path = fs.FileSystem.from_uri(f"{SCHEMES.get(scheme, scheme)}{self.uri[found.end(1) :]}")
        except pa.ArrowInvalid as error:
            raise Unusable(
                f"{self.named_by} {self.uri} cannot be used ({error}); give a path, or a URI of one of the schemes "
                f"{', '.join(SCHEMES)}."
            ) from None
        return file_system, path

    def _no_history(self, why: str) -> Missing:
        return Missing(
            f"There is no history at {self.named_by} {self.uri}, for {why}; it must be the job's `compaction.history.dir` itself."
        )
