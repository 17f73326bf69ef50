"""The settings of a shard."""

from __future__ import annotations

import pytest

from holdfast.daemon.share.config import ShardConfig


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("updates_per_snapshot", -1),
        ("updates_per_snapshot", 501),
        ("state_batches_max", 0),
    ],
)
def test_a_setting_out_of_bounds_is_refused_by_name(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{field} is {value}; use"):
        ShardConfig(**{field: value})  # type: ignore[arg-type]
