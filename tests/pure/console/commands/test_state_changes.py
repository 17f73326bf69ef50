"""What changes a state says before → after, asks where data goes, and says what happened; against a real service."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click
import pytest
from click.testing import Result

from holdfast.api.results import StateRequest
from holdfast.api.share_state import INITIALIZE, READ, WRITE
from holdfast.console import confirmation
from holdfast.console.outcomes import Exit
from holdfast.console.show.state_differences import state_data
from holdfast.daemon.access.acl import Acl, Operation
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.admin import Admin, AdminCommand
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.metrics.instruments import Counter
from holdfast.records.share.batches import ACKNOWLEDGED, AVAILABLE, StateBatch
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState
from holdfast.share.previews import preview
from tests.pure.console.conftest import Run, runner_for, served_in_thread
from tests.world.identity.access import OPEN, closed, cluster_acl, group_acl
from tests.world.samples import TOPIC
from tests.world.service import House, ask
from tests.world.serving import FakeCluster, serve
from tests.world.tenants import NEEDS, make_handler

TOPIC_TEXT = format_topic_id(TOPIC)
NAMED = ("--group", "g1", "--topic", "orders", "--partition", "0")
TITLE = f"Share partition g1:{TOPIC_TEXT}:0 (orders):"
BATCHES = (StateBatch(100, 109, ACKNOWLEDGED, 1), StateBatch(110, 119, AVAILABLE, 2))


class Holder:
    """A node's share calls and admin commands over the shards of a house; `orders:0` begins at 0 and ends at 200."""

    def __init__(self) -> None:
        self.house = House()
        self.calls: list[int] = []
        self.partition_for = self.house.service.partition_for
        self.ends: dict[str, Any] = {"first_offset": 0, "end_offset": 200, "problem": None}
        self.meanwhile: list[
            tuple[int, dict[str, Any]]
        ] = []  #: calls of somebody else, before the next one that changes
        self.on_change: Callable[[], None] = lambda: None
        self.preview_error: dict[str, Any] | None = None  #: what all previews answer in place of states

    def handle(self, api_key: int, request: StateRequest, respond: Any, caller: str) -> None:
        if api_key > 0:
            self.calls.append(api_key)
            self.on_change()
            while self.meanwhile:
                other_key, fields = self.meanwhile.pop()
                self.call(other_key, **fields)
        self.house.service.handle(api_key, request, respond)

    def commands(self) -> Mapping[str, AdminCommand]:
        return {
            "resolve-topic": lambda _: {"name": "orders", "topic_id": TOPIC_TEXT, "partitions": 8},
            "state-preview": self._preview,
            "topic-ends": lambda _: {TOPIC_TEXT: {"name": "orders", "partitions": {"0": self.ends}}},
        }

    async def _preview(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self.preview_error is not None:
            return {"before": None, "after": None, "error": self.preview_error}
        return await preview(self, arguments)

    def call(self, api_key: int, **fields: Any) -> None:
        self.house.call(api_key, (TOPIC, [ask(api_key, 0, **fields)]))

    def begin(self) -> None:
        """Make a state of start offset 100 with two batches."""
        self.call(INITIALIZE, state_epoch=3)
        self.call(WRITE, start_offset=100, state_batches=BATCHES, delivery_complete_count=10)

    @property
    def state(self) -> ShareState | None:
        return self.house.runtime.worlds[self.house.index(0)].shard.state.newest(SharePartitionKey("g1", TOPIC, 0))


@pytest.fixture
def holder() -> Holder:
    return Holder()


@pytest.fixture
def state(holder: Holder) -> Iterator[Run]:
    """Give a function that runs `holdfast state` with `g1:orders:0`."""
    cluster = FakeCluster()
    handler = make_handler(holder, cluster, Admin(holder.commands(), NEEDS, 60_000, InternalErrors(Counter())), OPEN)
    with served_in_thread(serve(handler=handler)) as served:
        cluster.nodes = served.cluster.nodes
        run = runner_for(served.address)
        yield lambda command, *arguments: run("state", command, *NAMED, *arguments)


# ---- before → after --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ("write", "--batch", "105-111:available:2"),
            ["offsets 105-109: acknowledged:1 → available:2"],
        ),
        (
            ("write", "--batch", "110-115:acknowledged:2", "--batch", "130:archived:1"),
            [
                "offsets 110-115: available:2 → acknowledged:2",
                "offset 130: none → archived:1",
            ],
        ),
        (
            ("write", "--start-offset", "110", "--delivery-complete-count", "0"),
            [
                "start offset: 100 → 110",
                "delivery complete count: 10 → 0",
                "offsets 100-109: acknowledged:1 → below the start",
            ],
        ),
        (
            ("write", "--start-offset", "100", "--delivery-complete-count", "12", "--batch", "120-129:archiving:3"),
            ["delivery complete count: 10 → 12", "offsets 120-129: none → archiving:3"],
        ),
        (("read", "--leader-epoch", "7"), ["leader epoch: 0 → 7"]),
    ],
)
def test_what_changes_is_shown_before_it_is_changed_and_is_what_is_found_afterwards(
    holder: Holder, state: Run, arguments: tuple[str, ...], lines: list[str]
) -> None:
    holder.begin()
    before = holder.state
    dry = state(*arguments, "--dry-run")
    assert dry.stderr.splitlines() == [TITLE, *(f"  {line}" for line in lines), "Nothing was changed (--dry-run)."]
    assert (dry.exit_code, holder.state) == (Exit.DONE, before)
    done = state(*arguments)
    assert done.stderr.splitlines() == [TITLE, *(f"  {line}" for line in lines), "Done: before → after is as shown."]
    assert (done.exit_code, holder.state != before) == (Exit.DONE, True)


@pytest.mark.parametrize(("named", "offset"), [("earliest", 0), ("latest", 200)])
def test_a_start_offset_is_named_as_users_of_kafka_name_it(holder: Holder, state: Run, named: str, offset: int) -> None:
    made = state("init", "--start-offset", named, "--json")
    assert json.loads(made.stdout)["after"]["start_offset"] == offset
    written = state("write", "--start-offset", "latest", "--json", "--force")
    assert json.loads(written.stdout)["after"]["start_offset"] == 200
    wrong = state("init", "--start-offset", "middle")
    assert (wrong.exit_code, "'middle' is no offset" in wrong.stderr) == (Exit.WRONG_USAGE, True)


def test_a_state_is_made_and_in_json_it_is_null_before(holder: Holder, state: Run) -> None:
    made = state("init", "--state-epoch", "3", "--start-offset", "100", "--json")
    assert json.loads(made.stdout) == {
        "before": None,
        "after": {
            "state_epoch": 3,
            "leader_epoch": 0,
            "start_offset": 100,
            "delivery_complete_count": 0,
            "state_batches": [],
        },
        "changed": True,
        "dry_run": False,
        "data_lost": [],
    }


def test_a_name_begins_no_line_of_its_own(state: Run) -> None:
    """Else whoever names a group would write lines that look like ours."""
    made = state("init", "--start-offset", "0", "--group", "x\nDone.")
    assert made.exit_code == Exit.DONE
    assert made.stderr.startswith(f"Share partition x\\nDone.:{TOPIC_TEXT}:0 (orders):\n")


def test_a_dry_run_in_json_changed_nothing(holder: Holder, state: Run) -> None:
    holder.begin()
    answer = json.loads(state("delete", "--dry-run", "--json").stdout)
    assert (answer["changed"], answer["dry_run"], answer["after"]) == (False, True, None)
    assert answer["before"] == state_data(holder.state)
    assert len(answer["data_lost"]) == 2


def test_a_write_that_loses_against_what_is_there_says_that_nothing_changed_and_is_not_sent(
    holder: Holder, state: Run
) -> None:
    holder.begin()
    lost = state("write", "--batch", "100-109:available:1", "--json")
    assert (lost.exit_code, lost.stderr.splitlines()) == (
        Exit.DONE,
        [
            TITLE,
            "Nothing changed: the state is so already, or what is there outweighs it (a higher delivery count or state).",
        ],
    )
    answer = json.loads(lost.stdout)
    assert answer["before"] == answer["after"] == state_data(holder.state)
    assert (answer["changed"], WRITE in holder.calls) == (False, False)


# ---- what is not there -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [("delete",), ("read",), ("summary",), ("read", "--leader-epoch", "1"), ("write", "--start-offset", "1")],
)
def test_a_share_partition_without_state_is_exit_code_6_and_what_an_operator_can_do(
    state: Run, arguments: tuple[str, ...]
) -> None:
    answer = state(*arguments)
    assert answer.exit_code == Exit.NOT_FOUND
    assert answer.stderr.splitlines()[-1] == (
        "Error: The share partition g1:orders:0 has no state: see whether group, topic and partition are right; "
        "`holdfast state init` makes a state."
    )


@pytest.mark.parametrize("arguments", [("write", "--start-offset", "110"), ("read", "--leader-epoch", "1")])
@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_node_that_cannot_look_does_not_say_that_there_is_no_state(
    holder: Holder, state: Run, arguments: tuple[str, ...], options: tuple[str, ...]
) -> None:
    holder.begin()
    # As where brokers are away.
    holder.preview_error = {"code": int(ErrorCode.COORDINATOR_NOT_AVAILABLE), "message": "not committed in time"}
    answer = state(*arguments, *options)
    assert answer.exit_code == Exit.FAILED
    assert "COORDINATOR_NOT_AVAILABLE" in answer.stderr
    assert "no state" not in answer.stderr


def test_a_state_that_is_like_none_is_shown(holder: Holder, state: Run) -> None:
    holder.call(INITIALIZE, start_offset=-1)
    assert json.loads(state("summary", "--json").stdout)["start_offset"] == -1
    assert state("read").exit_code == Exit.DONE


def test_a_change_that_cannot_be_read_back_is_done_and_not_called_another_s(holder: Holder, state: Run) -> None:
    holder.begin()
    holder.on_change = lambda: setattr(holder, "preview_error", {"code": 15, "message": "not committed in time"})
    answer = state("write", "--start-offset", "110", "--delivery-complete-count", "0")
    assert answer.exit_code == Exit.DONE
    assert "Done; the state cannot be read now: COORDINATOR_NOT_AVAILABLE" in answer.stderr
    assert "others" not in answer.stderr


# ---- where data goes -------------------------------------------------------------------------------------------------

FORGOTTEN = "Data goes: what became of offsets 100-119 is forgotten."


@pytest.mark.parametrize(
    ("arguments", "loss"),
    [
        (("init", "--state-epoch", "3", "--start-offset", "100"), FORGOTTEN),
        (("init", "--state-epoch", "4"), FORGOTTEN),
        (("delete",), FORGOTTEN),
        (
            ("write", "--start-offset", "115"),
            "Data goes: the start offset passes over offsets 110-114, which are not finished and will not be delivered any more.",
        ),
        (
            ("init", "--state-epoch", "3", "--start-offset", "90"),
            "Data goes: the start offset goes back, so the group gets offsets 90-99 again.",
        ),
    ],
)
def test_where_data_goes_somebody_agrees_or_nothing_is_changed(
    holder: Holder, state: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], loss: str
) -> None:
    holder.begin()
    before = holder.state
    refused = state(*arguments)
    assert loss in refused.stderr.splitlines()
    assert refused.stderr.splitlines()[-1] == (
        "Error: Nothing was changed, because data would go; --force does it all the same."
    )
    assert (refused.exit_code, holder.state) == (Exit.WRONG_USAGE, before)
    dry = state(*arguments, "--dry-run")
    assert (dry.exit_code, holder.state, "which wants --force" in dry.stderr) == (Exit.DONE, before, True)
    monkeypatch.setattr(confirmation, "is_terminal", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda *_, **__: False)
    declined = state(*arguments)
    assert (declined.exit_code, holder.state) == (Exit.FAILED, before)
    assert declined.stderr.splitlines()[-1] == "Error: Nothing was changed."
    monkeypatch.setattr(click, "confirm", lambda *_, **__: True)
    assert state(*arguments, "--dry-run").exit_code == Exit.DONE
    assert holder.state == before
    assert state(*arguments).exit_code == Exit.DONE
    assert holder.state != before


def test_a_write_that_would_take_the_start_offset_back_is_refused_with_what_does(holder: Holder, state: Run) -> None:
    holder.begin()
    before = holder.state
    refused = state("write", "--start-offset", "99", "--force")
    assert (refused.exit_code, holder.state) == (Exit.WRONG_USAGE, before)
    assert refused.stderr.splitlines()[-1] == (
        "Error: --start-offset is 99, and the state begins at 100 already, which a write never takes back; "
        "`holdfast state init` begins from scratch where it is told to."
    )


def test_a_count_without_its_start_offset_is_refused(holder: Holder, state: Run) -> None:
    holder.begin()
    refused = state("write", "--batch", "120:acknowledged:1", "--delivery-complete-count", "11")
    assert refused.exit_code == Exit.WRONG_USAGE
    assert "--delivery-complete-count counts from a start offset on" in refused.stderr


def test_a_state_is_read_without_raising_its_leader_epoch_also_after_an_initialize(holder: Holder, state: Run) -> None:
    holder.begin()
    holder.call(READ, leader_epoch=5)
    holder.call(INITIALIZE, state_epoch=4)  # the leader epoch is 0 again, and the fence still 5
    before = holder.state
    assert state("read").exit_code == Exit.DONE
    assert state("write", "--batch", "100:acknowledged:1").exit_code == Exit.DONE
    assert before is not None
    assert holder.state is not None
    assert (holder.state.leader_epoch, holder.state.leader_epoch_fence) == (0, 5)


def test_with_force_nobody_is_asked(holder: Holder, state: Run) -> None:
    holder.begin()
    assert state("delete", "--force").exit_code == Exit.DONE
    assert holder.state is None


# ---- beyond the end --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("write", "--batch", "0-9223372036854775806:acknowledged:1"),
        ("write", "--batch", "200:acknowledged:1"),
        ("write", "--start-offset", "201", "--force"),
        ("init", "--state-epoch", "3", "--start-offset", "201", "--force"),
    ],
)
def test_what_lies_beyond_the_end_of_the_topic_is_decided_only_when_it_is_meant(
    holder: Holder, state: Run, arguments: tuple[str, ...]
) -> None:
    holder.begin()
    before = holder.state
    for flags in ([], ["--dry-run"]):
        refused = state(*arguments, *flags)
        assert (refused.exit_code, holder.state) == (Exit.WRONG_USAGE, before)
        assert "the next record of orders:0 gets offset 200. If that is meant, give --beyond-the-end." in refused.stderr
    assert state(*arguments, "--beyond-the-end").exit_code == Exit.DONE
    assert holder.state != before


def test_the_last_record_and_the_end_itself_are_within_the_topic(holder: Holder, state: Run) -> None:
    holder.begin()
    assert state("write", "--batch", "199:acknowledged:1").exit_code == Exit.DONE
    assert state("write", "--start-offset", "200", "--force").exit_code == Exit.DONE


def test_where_the_end_is_not_known_nothing_is_changed_unless_it_need_not_be(holder: Holder, state: Run) -> None:
    holder.begin()
    holder.ends = {"first_offset": -1, "end_offset": -1, "problem": "Kafka cannot be reached: a is silent"}
    refused = state("write", "--batch", "150:acknowledged:1")
    assert refused.exit_code == Exit.FAILED
    assert "is not known (Kafka cannot be reached: a is silent)" in refused.stderr
    assert state("write", "--batch", "150:acknowledged:1", "--beyond-the-end").exit_code == Exit.DONE


def test_records_that_the_topic_no_longer_has_are_not_lost_by_passing_over_them(holder: Holder, state: Run) -> None:
    holder.begin()
    holder.ends["first_offset"] = 150
    passed = state("write", "--start-offset", "150")
    assert (passed.exit_code, "Data goes" in passed.stderr) == (Exit.DONE, False)


# ---- epochs, and who else writes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("option", "current"), [("--state-epoch", 3), ("--leader-epoch", 7)])
def test_an_epoch_above_the_current_one_is_refused_with_the_current_one(
    holder: Holder, state: Run, option: str, current: int
) -> None:
    holder.begin()
    holder.call(READ, leader_epoch=7)
    before = holder.state
    refused = state("write", "--batch", "120:acknowledged:1", option, "77")
    assert refused.exit_code == Exit.FAILED
    assert refused.stderr == (
        f"Error: {option} is 77, and the current one is {current}; give that, or leave {option} out.\n"
    )
    lower = state("write", "--batch", "120:acknowledged:1", option, str(current - 1))
    assert (lower.exit_code, "is fenced" in lower.stderr, holder.state) == (Exit.FAILED, True, before)
    assert state("write", "--batch", "120:acknowledged:1", option, str(current)).exit_code == Exit.DONE


def test_a_leader_that_comes_between_look_and_write_fences_the_write(holder: Holder, state: Run) -> None:
    holder.begin()
    holder.meanwhile = [(READ, {"leader_epoch": 9})]
    fenced = state("write", "--batch", "120:acknowledged:1")
    assert (fenced.exit_code, "FENCED_LEADER_EPOCH" in fenced.stderr) == (Exit.FAILED, True)
    assert holder.state is not None
    assert holder.state.state_batches == BATCHES


def test_what_others_changed_meanwhile_is_reported(holder: Holder, state: Run) -> None:
    holder.begin()
    holder.meanwhile = [(WRITE, {"state_batches": (StateBatch(130, 139, AVAILABLE, 1),)})]
    done = state("write", "--batch", "120:acknowledged:1")
    assert "Done; meanwhile others changed the state too. Before → now:" in done.stderr.splitlines()
    assert done.stderr.splitlines()[-1] == "  offsets 130-139: none → available:1"


# ---- denials ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("init", "--state-epoch", "4"), {"--cluster": {"DESCRIBE"}, "--group": {"READ", "WRITE"}}),
        (
            ("init", "--state-epoch", "4", "--start-offset", "latest"),
            {"--cluster": {"DESCRIBE"}, "--group": {"READ", "WRITE"}},
        ),
        (("write", "--batch", "120-129:acknowledged:1"), {"--cluster": {"DESCRIBE"}, "--group": {"READ", "WRITE"}}),
        (("delete",), {"--cluster": {"DESCRIBE"}, "--group": {"READ", "DELETE"}}),
        (("read",), {"--cluster": {"DESCRIBE"}, "--group": {"READ"}}),
        (("read", "--leader-epoch", "3"), {"--cluster": {"DESCRIBE"}, "--group": {"READ"}}),
        (("summary",), {"--cluster": {"DESCRIBE"}, "--group": {"READ"}}),
        (("delete", "--topic", TOPIC_TEXT), {"--group": {"READ", "DELETE"}}),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_all_rights_that_a_command_lacks_are_named_at_once(
    holder: Holder, arguments: tuple[str, ...], wanted: dict[str, set[str]]
) -> None:
    """What the first answer names is enough: with those rules the command runs."""
    holder.begin()
    command, *others = arguments
    typed = ("state", command, *NAMED, *others, *(() if command in ("read", "summary") else ("--force",)))

    def run_with(*acls: Acl) -> Result:
        cluster = FakeCluster()
        admin = Admin(holder.commands(), NEEDS, 60_000, InternalErrors(Counter()))
        with served_in_thread(serve(handler=make_handler(holder, cluster, admin, closed(*acls)))) as served:
            cluster.nodes = served.cluster.nodes
            return runner_for(served.address)(*typed)

    denied = run_with()
    assert denied.exit_code == Exit.DENIED, denied.stderr
    named: dict[str, set[str]] = {}
    for line in denied.stderr.splitlines():
        assert f"which `holdfast state {command}` needs" in line.replace("`main ", "`holdfast ")
        words = shlex.split(line.partition("`holdfast acls add ")[2].partition("`")[0])
        named["--group" if "--group" in words else "--cluster"] = {
            words[at + 1] for at, word in enumerate(words) if word == "--operation"
        }
    assert named == wanted
    rules = [cluster_acl(Operation(each)) for each in named.get("--cluster", ())]
    rules += [group_acl(Operation(each), "g1") for each in named["--group"]]
    allowed = run_with(*rules)
    assert allowed.exit_code == Exit.DONE, allowed.stderr
