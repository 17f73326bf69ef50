"""The settings of a shard."""

from __future__ import annotations

import pytest

from tests.configs import shard_config


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("snapshot_update_records_per_snapshot", -1),
        ("snapshot_update_records_per_snapshot", 501),
        ("state_batches_max", 0),
    ],
)
def test_a_setting_out_of_bounds_is_refused_by_name(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{field} is {value}; use"):
        shard_config(**{field: value})
