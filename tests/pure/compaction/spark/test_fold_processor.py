"""What each start of a query has a new Python import."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")


def test_the_state_is_declared_without_pandas() -> None:
    script = "import sys, holdfast.compaction.spark.fold_processor; print('pandas' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert output.stdout == "False\n"
