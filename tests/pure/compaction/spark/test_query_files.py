"""Files of a query that a machine without power left empty."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from holdfast.compaction.errors import DamagedFile
from holdfast.compaction.spark.query_files import QueryFiles

TOPIC = "state"
PLAN = 'v1\n{"batchWatermarkMs":0}\n{"state":{"0":7}}'


class Files:
    """A `Directory` in memory."""

    path = "/c"

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = {f"query/{name}": text for name, text in texts.items()}

    def files(self, name: str) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self.texts if path.rpartition("/")[0] == name)

    def read_text(self, name: str) -> str | None:
        if self.texts.get(name) == "damaged":
            raise ValueError("it does not agree with its checksum")
        return self.texts.get(name)

    def remove(self, name: str = "") -> None:
        if name:
            del self.texts[name]
        else:
            self.texts.clear()


def query_files(texts: dict[str, str]) -> tuple[QueryFiles, Files]:
    files: Any = Files(texts)
    return QueryFiles(files), files


@pytest.mark.parametrize(
    ("texts", "removed"),
    [
        ({"offsets/0": PLAN, "commits/0": "v1", "offsets/1": ""}, ["offsets/1"]),
        ({"offsets/0": PLAN, "commits/0": "v1", "offsets/1": "\0" * 90}, ["offsets/1"]),
        ({"offsets/0": PLAN, "commits/0": "v1", "offsets/1": PLAN, "commits/1": ""}, ["commits/1"]),
        ({"offsets/0": PLAN, "commits/0": ""}, ["commits/0"]),
        ({"offsets/9": PLAN, "commits/9": "v1", "offsets/10": ""}, ["offsets/10"]),
        ({"offsets/0": PLAN, "commits/0": "v1", "offsets/1": PLAN}, []),
        ({"offsets/0": PLAN, "commits/0": "v1", "offsets/1": "damaged"}, []),
        ({}, []),
    ],
)
def test_empty_files_about_batches_that_spark_can_repeat_are_removed(texts: dict[str, str], removed: list[str]) -> None:
    files, directory = query_files(texts)
    assert files.remove_empty() == [f"/c/query/{name}" for name in removed]
    assert directory.texts.keys() == {f"query/{name}" for name in texts.keys() - set(removed)}


@pytest.mark.parametrize(
    "texts",
    [
        {"offsets/0": PLAN, "commits/0": "v1", "offsets/1": "", "commits/1": ""},
        {"offsets/0": "", "commits/0": ""},
        {"offsets/0": ""},
    ],
)
def test_a_query_that_lost_plan_and_end_of_a_batch_begins_at_the_start_of_the_log(texts: dict[str, str]) -> None:
    files, directory = query_files(texts)
    assert files.remove_empty() == ["/c"]
    assert directory.texts == {}


def test_an_empty_plan_of_a_finished_batch_is_kept_and_named() -> None:
    files, _ = query_files({"offsets/0": "", "commits/0": "v1"})
    assert files.remove_empty() == []
    with pytest.raises(DamagedFile, match=r"^/c/query/offsets/0 is damaged .*; stop the job and remove /c,"):
        files.next_offsets(TOPIC)


def test_the_partitions_of_the_state_are_those_of_the_checkpoint() -> None:
    plan = 'v1\n{"conf":{"spark.sql.shuffle.partitions":"8"}}\n{}'
    assert query_files({"offsets/0": plan})[0].state_partitions() == 8
    for texts in ({}, {"offsets/0": PLAN}, {"offsets/0": ""}, {"offsets/0": "damaged"}):
        assert query_files(texts)[0].state_partitions() is None
