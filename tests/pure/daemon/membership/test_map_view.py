"""Who is named to clients: who serves, this node or a former owner; else whom the map has, a stale one for a while; else nobody."""

from typing import Final

from kio.schema.find_coordinator.v6.response import FindCoordinatorResponse
from kio.serial import entity_reader

from holdfast.daemon.membership.division.ownership_map import FormerOwner, MappedMember, OwnershipMap, Work
from holdfast.daemon.membership.handover.former_owners import FormerOwners
from holdfast.daemon.membership.map_view import MapView, OwnTasks
from holdfast.daemon.partitions.partitions import LogPlace
from holdfast.daemon.server import find_coordinator
from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.protocol.primitives import encode_string, encode_varint
from holdfast.records.share.keys import SharePartitionKey, format_key
from tests.world.tenants import share_keys

US: Final = Node(1, "h", 9001)
OTHER: Final = Node(2, "h", 9002)
STALE_MS: Final = 10_000
HANDOVER_MS: Final = 60_000


class World:
    def __init__(self) -> None:
        self.now_ms = 0
        self.served: set[int] = set()
        #: Whose owner epoch was read in the log.
        self.read: set[int] = set()
        self.alarmed: set[int] = set()
        topic = StateTopic("state", bytes(16), 5, 1, 1_000_000)
        self.former = FormerOwners(
            US,
            self.served.__contains__,
            word_age_max_ms=1_000,
            now_ms=lambda: self.now_ms,
            changed=lambda _: None,
        )
        self.view = MapView(
            LogPlace(topic, "cluster", ConnectionOptions(bootstrap=(("127.0.0.1", 1),)), US),
            OwnTasks(
                self.served.__contains__,
                self.alarmed.__contains__,
                lambda partition: 7 if partition in self.served | self.read else -1,
            ),
            self.former,
            handover_timeout_ms=HANDOVER_MS,
            stale_map_max_ms=STALE_MS,
            now_ms=lambda: self.now_ms,
        )

    def adopt(
        self, ours: tuple[int, ...], others: tuple[int, ...], other: Node = OTHER, *former: tuple[Node, tuple[int, ...]]
    ) -> None:
        members = (MappedMember("a", US, Work(ours)), MappedMember("b", other, Work(others)))
        self.view.adopt(OwnershipMap(1, members, (), tuple(FormerOwner(*each, HANDOVER_MS) for each in former)))
        self.view.set_stale(is_stale=False)

    def owners(self) -> list[int | None]:
        found = [self.view.owner(index) for index in range(5)]
        return [None if node is None else node.node_id for node in found]


def test_who_serves_a_log_partition_is_named_before_whom_the_map_has() -> None:
    world = World()
    world.adopt((0, 1), (2, 3))
    assert world.owners() == [1, 1, 2, 2, None]
    world.served |= {2}  # on its way to the other node
    assert world.owners() == [1, 1, 1, 2, None]
    assert [world.view.owner_epoch(index) for index in range(5)] == [-1, -1, 7, -1, -1]
    assert world.view.nodes == (US, OTHER)


def test_a_former_owner_is_named_while_it_is_known_to_serve() -> None:
    world = World()
    gone = Node(3, "h", 9003)
    world.adopt((0, 1), (2, 3), OTHER, (gone, (0, 2, 4)))
    assert (world.owners(), world.view.nodes) == ([1, 1, 2, 2, None], (US, OTHER))
    world.former.answered(gone, {0: 5, 2: 5, 4: 5}, world.now_ms)
    assert (world.owners(), world.view.nodes) == ([3, 1, 3, 2, 3], (US, OTHER, gone))
    world.view.set_stale(is_stale=True)
    assert world.owners() == [3, None, 3, 2, 3]
    world.view.set_stale(is_stale=False)
    world.served |= {0}
    assert world.owners() == [1, 1, 3, 2, 3]
    world.served |= {1}
    assert world.view.may_serve([0, 1]) == (
        FormerOwner(US, (0, 1), HANDOVER_MS),
        FormerOwner(OTHER, (2, 3), HANDOVER_MS),
        FormerOwner(gone, (2, 4), HANDOVER_MS),
    )
    world.served -= {1}
    world.former.unanswered(gone)
    assert world.owners() == [1, 1, 2, 2, None]
    world.former.answered(gone, {2: 5}, world.now_ms)
    world.view.drop()
    assert world.owners() == [1, None, None, None, None]


def test_nobody_is_named_where_an_alarm_of_ours_waits_for_an_admin() -> None:
    world = World()
    world.adopt((0, 1), (2, 3))
    world.alarmed |= {1, 3}  # the second is not ours to judge
    assert world.owners() == [1, None, 2, 2, None]


def test_a_stale_map_names_others_for_a_while_and_us_for_what_we_serve() -> None:
    world = World()
    world.adopt((0, 1), (2, 3))
    world.served |= {1, 2}
    world.view.set_stale(is_stale=True)
    world.now_ms = STALE_MS
    world.view.set_stale(is_stale=True)  # it does not become younger
    assert world.owners() == [None, 1, 1, 2, None]
    world.now_ms += 1
    assert world.owners() == [None, 1, 1, None, None]
    assert world.view.nodes == (US,)
    world.adopt((), (0, 1, 2, 3))
    assert world.owners() == [2, 1, 1, 2, None]


def test_the_map_of_a_lost_session_is_never_answered_from() -> None:
    world = World()
    world.adopt((0, 1), (2, 3))
    world.served |= {0}
    world.view.drop()
    world.view.set_stale(is_stale=True)
    assert world.owners() == [1, None, None, None, None]
    assert world.view.nodes == (US,)


def test_a_new_address_is_in_the_map_after_one_rebalance() -> None:
    world = World()
    world.adopt((0,), (1,))
    moved = Node(2, "elsewhere", 9102)
    world.adopt((0,), (1,), moved)
    assert (world.view.owner(1), world.view.nodes) == (moved, (US, moved))


def test_who_owns_something_unknown_is_unknown() -> None:
    world = World()
    world.adopt((0,), (1,))
    assert (world.view.owner(99), world.view.map and world.view.map.owner("no such duty")) == (None, None)


def test_all_keys_of_a_request_are_answered_from_one_version_of_the_map() -> None:
    world = World()
    world.adopt((0, 1, 2, 3, 4), ())
    count = 10_000
    keys = b"".join(encode_string(format_key(SharePartitionKey("g", bytes(15) + b"1", each))) for each in range(count))
    by_partition = share_keys(lambda key: key.partition % 5)
    body = b"\x02" + encode_varint(count + 1) + keys + b"\x00"
    pieces = []
    for piece in find_coordinator.Finder(6, world.view, by_partition, lambda _: True, "denied").answer(body, 0, count):
        pieces.append(piece)
        world.adopt((), (0, 1, 2, 3, 4))
    answer, _ = entity_reader(FindCoordinatorResponse)(b"".join(pieces), 0)
    assert len(pieces) > 50
    assert {each.node_id for each in answer.coordinators} == {1}
    finder = find_coordinator.Finder(6, world.view, share_keys(lambda key: 0), lambda _: True, "denied")
    after, *_ = finder.answer(body, 0, count)
    assert OTHER.port.to_bytes(4, "big") in after


def test_the_epoch_of_another_owner_is_not_that_of_a_node_that_is_to_take_a_log_partition() -> None:
    world = World()
    world.adopt((0, 1), (2, 3))
    world.read |= {0, 2}
    assert [world.view.owner_epoch(index) for index in (0, 2)] == [-1, 7]
    world.served |= {0}
    assert world.view.owner_epoch(0) == 7
