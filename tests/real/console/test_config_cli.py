"""The settings of all nodes: set by the tool, kept by a real topic, and taken by a node."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from holdfast.cli import main
from holdfast.console.outcomes import Exit
from tests.real.nodes import NodeProcess, node_processes
from tests.waiting import PATIENCE_MS, PATIENCE_S, block_until

pytestmark = pytest.mark.real


class Tool:
    """`holdfast config` about one state topic."""

    def __init__(self, kafka: str, topic: str) -> None:
        self._place = ("--bootstrap-server", kafka, "--state-topic", topic)

    def run(self, *arguments: str) -> Result:
        result = CliRunner().invoke(main, ("config", *arguments, *self._place))
        assert result.exception is None or isinstance(result.exception, SystemExit), "a traceback reached the user"
        return result

    def done(self, *arguments: str) -> Result:
        result = self.run(*arguments)
        assert result.exit_code == Exit.DONE, result.stderr
        return result

    def listed(self, *arguments: str) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in json.loads(self.done("list", "--json", *arguments).stdout)}


def standings(tool: Tool, node: NodeProcess) -> dict[str, str]:
    return {name: row["on_node"] for name, row in tool.listed("--address", node.address).items()}


def until_standings(tool: Tool, node: NodeProcess, wanted: dict[str, str]) -> None:
    block_until(lambda: standings(tool, node) == wanted, f"the node has {wanted}")


def test_a_node_takes_what_is_set_for_all_and_follows_what_it_can(kafka: str, topic: str, tmp_path: Path) -> None:
    tool = Tool(kafka, topic)
    for arguments in (("list",), ("get", "loads_max"), ("set", "loads_max=6"), ("set", "loads_max=6", "--dry-run")):
        misspelt = tool.run(*arguments)
        assert (misspelt.exit_code, misspelt.stderr) == (
            Exit.NOT_FOUND,
            f"Error: There is no state topic {topic}; name that of your nodes by --state-topic, or give "
            "`holdfast config set` --before-the-first-node if they have not made it yet.\n",
        )
    wrong = tool.run("set", "loads_max=0", "log_level=info", "--before-the-first-node")
    assert (wrong.exit_code, "loads_max is '0' (in the config topic); it must be" in wrong.stderr) == (
        Exit.WRONG_USAGE,
        True,
    )
    tool.done("set", "loads_max=6", "--before-the-first-node", "--dry-run")
    assert f"{topic}_config" not in AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=PATIENCE_S).topics
    tool.done("set", "loads_max=7", "log_level=info", "parked_writes_max=500", "--before-the-first-node")
    # A name of a newer version.
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(f"{topic}_config", "12", "moons_max", 0)
    assert producer.flush(PATIENCE_S) == 0
    assert tool.done("get", "moons_max").stdout == "12\n"

    with node_processes(kafka, topic, tmp_path) as make_node:
        node = make_node(**{"parked_writes_max": 400, "config.read.timeout.ms": PATIENCE_MS})
        asyncio.run(node.start())
        settings = asyncio.run(node.ask("settings"))
        assert (settings["loads_max"], settings["parked_writes_max"]) == (7, 400)
        unknown = "refused: moons_max is no setting; `holdfast settings` shows all of a node."
        at_start = {
            "loads_max": "in force",
            "log_level": "in force",
            "moons_max": unknown,
            "parked_writes_max": "overruled as a flag",
        }
        assert standings(tool, node) == at_start

        tool.done("set", "loads_max=9", "log_level=warning")
        until_standings(tool, node, at_start | {"loads_max": "needs a restart"})
        settings = asyncio.run(node.ask("settings"))
        assert (settings["loads_max"], settings["log_level"]) == (7, "warning")

        tool.done("unset", "loads_max", "moons_max", "log_level")
        until_standings(tool, node, {"parked_writes_max": "overruled as a flag"})
        assert asyncio.run(node.ask("config"))["offset"] == 8
        assert asyncio.run(node.ask("settings"))["log_level"] == "info"
    assert tool.run("unset", "loads_max").exit_code == Exit.NOT_FOUND
