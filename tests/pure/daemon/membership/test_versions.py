"""An upgrade that goes from node to node: a member that offers a newer version of the protocol first, beside ours."""

from collections.abc import Sequence

import pytest

from holdfast.daemon.membership.division.metadata import COOPERATIVE, EAGER, is_eager, protocol_names
from holdfast.records.log.checkpoint import Placement
from tests.pure.daemon.membership.world import Clock, Group, Member


class Newer:
    """The coordinator of a newer version: its own bytes under its own name, and ours beside them."""

    def __init__(self, member: Member) -> None:
        self._ours = member.coordinator
        member.coordinator = self  # type: ignore[assignment]  # it stands before the real one

    def __getattr__(self, name: str) -> object:
        return getattr(self._ours, name)

    def metadata(self) -> Sequence[tuple[str, bytes]]:
        return [("cooperative-2", b"no bytes of ours"), *self._ours.metadata()]


async def test_a_member_of_a_newer_version_and_ours_divide_the_work_whoever_leads() -> None:
    for leads in (0, 1):
        clock, group = Clock(), Group()
        old, new = Member(1, clock), Member(2, clock)
        Newer(new)
        assert [name for name, _ in new.coordinator.metadata()] == ["cooperative-2", COOPERATIVE, EAGER]
        await group.rebalance(old)
        # The broker counts the votes of those that all know; ours offers nothing newer.
        await group.rebalance(new, old, leader=(old, new)[leads])
        assert old.done()[-1] == "begin [0, 1] under 2"
        assert new.done()[0] == "begin [2, 3] under 2"
        assert old.coordinator.why_not_ready() == new.coordinator.why_not_ready() == ""
        assert (old.refusals, new.refusals) == ([], [])
        # It leaves again, as when the upgrade is taken back.
        await group.rebalance(old)
        assert old.done()[-1] == "begin [0, 1, 2, 3] under 3"


def test_a_version_without_placements_shares_no_protocol_with_a_group_whose_log_it_could_not_serve() -> None:
    member = Member(1, Clock())
    assert [name for name, _ in member.coordinator.metadata()] == [COOPERATIVE, EAGER]
    member.placement = Placement.BY_TOPIC_PARTITION
    names = [name for name, _ in member.coordinator.metadata()]
    assert names == ["cooperative-1-by-topic-partition", "eager-1-by-topic-partition"]


@pytest.mark.parametrize("placement", Placement)
def test_eager_protocol_is_known_by_its_name(placement: Placement) -> None:
    assert [is_eager(name) for name in protocol_names(COOPERATIVE, EAGER, placement=placement)] == [False, True]
