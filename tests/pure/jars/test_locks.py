"""Locks between processes: one holder, or any number of those who share."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.jars.errors import LockHeld
from holdfast.jars.locks import file_lock


def test_any_number_may_share_a_lock_and_nobody_holds_it_alone_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with file_lock(path, timeout_s=0, shared=True):
        with (
            file_lock(path, timeout_s=0, shared=True),
            pytest.raises(LockHeld, match="has held"),
            file_lock(path, timeout_s=0),
        ):
            pytest.fail("two held it")
        with pytest.raises(LockHeld, match="has held"), file_lock(path, timeout_s=0):
            pytest.fail("two held it")
    with (
        file_lock(path, timeout_s=0),
        pytest.raises(LockHeld, match="has held"),
        file_lock(path, timeout_s=0, shared=True),
    ):
        pytest.fail("two held it")
