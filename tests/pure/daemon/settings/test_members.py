"""The settings of a member that go together, or not: the error names both."""

import pytest

from holdfast.daemon.settings.components.members import MemberSettings
from holdfast.daemon.settings.file_env_flags import ConfigError
from holdfast.node_settings import load_settings


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"heartbeat.interval.ms": 4_000}, ("heartbeat.interval.ms is 4000", "session.timeout.ms 10000", "a third")),
        ({"session.timeout.ms": 3_000}, ("heartbeat.interval.ms is 1000", "session.timeout.ms 3000", "a third")),
        ({"rebalance.timeout.ms": 9_999}, ("session.timeout.ms is 10000", "rebalance.timeout.ms 9999")),
        ({"membership": "alone"}, ("membership", "static", "group")),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_one_error_that_names_both(
    flags: dict[str, object], named: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings(flags={"kafka.bootstrap.servers": "127.0.0.1:1"} | flags)
    assert len(refused.value.problems) == 1
    assert all(name in str(refused.value) for name in named)


def test_the_group_is_called_by_the_state_topic_unless_it_has_a_name() -> None:
    assert MemberSettings().group_of("state") == "holdfast-state"
    assert MemberSettings(group_id="shop").group_of("state") == "shop"
    assert MemberSettings(membership="static", group_id="shop").group_of("state") is None
