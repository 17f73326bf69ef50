"""`holdfast config`: the settings of all nodes, in the config topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any, Final, NamedTuple

import click
from confluent_kafka import KafkaException

from holdfast.console.options import (
    admin,
    dry_run_option,
    json_option,
    kafka_options,
    kafka_properties,
    split_assignment,
    state_topic_option,
)
from holdfast.console.outcomes import Exit, Failure, exit_unanswered, wrong_settings
from holdfast.console.show.output import print_json, print_rows, say
from holdfast.console.show.tables import Column
from holdfast.console.sources.kafka_reader import READ_TIMEOUT_S, KafkaReader
from holdfast.daemon.config_topic.store import ConfigTopicError, ensure_config_topic, write_values
from holdfast.daemon.config_topic.values import PARTITION, VALUES_BYTES_MAX, ClusterValues, TooManyValues
from holdfast.daemon.settings.cluster_wide import TAKEN_OVER_WHILE_RUNNING
from holdfast.daemon.settings.components.config_topic import config_topic_of
from holdfast.daemon.settings.file_env_flags import ConfigError, check_cluster_change, cluster_wide_name
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.librdkafka import KafkaClients
from holdfast.node_settings import SETTINGS

_TIMEOUT_MS: Final = round(READ_TIMEOUT_S * 1_000)
_AHEAD: Final = "--before-the-first-node"
_COLUMNS: Final = {
    "name": Column("setting"),
    "value": Column("value"),
    "offset": Column("offset", is_number=True, dropped_as=1),
    "taken_over": Column("taken over", is_detail=True),
}
_NODE_COLUMNS: Final = _COLUMNS | {"on_node": Column("on the node", is_detail=True)}


class ConfigTopicPlace(NamedTuple):
    """The config topic, and the cluster that has it."""

    properties: dict[str, str]
    state_topic: str
    topic: str

    def read(self, *, is_ahead: bool = False) -> ClusterValues:
        """Return what it holds now; nothing where there is no such topic yet.

        Args:
            is_ahead: whether there need be no state topic yet either. Else a misspelt name would look like one of which nothing is
                set, and the first setting would make it a config topic that no node reads.

        Raises:
            Failure: no broker answers, there is neither config topic nor state topic, or there is too much in it.
        """
        values = ClusterValues(VALUES_BYTES_MAX)
        with KafkaReader(self.properties) as kafka:
            if not _is_there(kafka, self.topic):
                if not (is_ahead or _is_there(kafka, self.state_topic)):
                    raise Failure(
                        f"There is no state topic {self.state_topic}; name that of your nodes by --state-topic, or give "
                        f"`holdfast config set` {_AHEAD} if they have not made it yet.",
                        Exit.NOT_FOUND,
                    )
                return values
            start, end = kafka.bounds(self.topic, PARTITION)
            if start < end:
                try:
                    for offset, message in kafka.read(self.topic, PARTITION, end, start):
                        values.add([(offset, _bytes(message.key()), _bytes(message.value()))])
                except TooManyValues as error:
                    raise Failure(f"The config topic {self.topic} cannot be read: {error}.") from None
        return values

    def write(self, values: Mapping[str, str | None]) -> None:
        """Write values by name, None to unset one; the topic is made if it is missing.

        Raises:
            Failure: Kafka refused, or cannot be reached.
        """
        clients = KafkaClients(self.properties)
        try:
            ensure_config_topic(clients, self.topic, self.state_topic, _TIMEOUT_MS)
            write_values(clients, self.topic, values, _TIMEOUT_MS)
        except ConfigTopicError as error:
            raise Failure(str(error)) from None
        except ConnectionFailed as failure:
            text = f"Kafka cannot be reached ({failure}); see --bootstrap-server."
            raise Failure(text, exit_unanswered(failure)) from None
        except KafkaException as error:
            raise Failure(f"A property of Kafka is wrong: {error.args[0].str()}.", Exit.WRONG_USAGE) from None


def _is_there(kafka: KafkaReader, topic: str) -> bool:
    try:
        kafka.partitions(topic)
    except Failure as failure:
        if failure.exit_code != Exit.NOT_FOUND:
            raise
        return False
    return True


def _bytes(part: str | bytes | None) -> bytes | None:
    return part.encode() if isinstance(part, str) else part


def _place_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name the config topic; the command gets `place` in their stead."""

    @kafka_options
    @state_topic_option
    @click.option(
        "--config-topic",
        envvar="HOLDFAST_CONFIG_TOPIC",
        show_envvar=True,
        default="",
        metavar="TOPIC",
        help="The topic that holds the settings of all nodes.  [default: the state topic's name with _config at its end]",
    )
    @wraps(command)
    def with_place(
        bootstrap_server: str,
        properties: Sequence[str],
        state_topic: str,
        config_topic: str,
        **arguments: Any,  # noqa: ANN401
    ) -> None:
        topic = config_topic or config_topic_of(state_topic)
        command(place=ConfigTopicPlace(kafka_properties(bootstrap_server, properties), state_topic, topic), **arguments)

    return with_place


@click.group()
def config() -> None:
    """Show and change the settings that hold for all nodes of a state topic.

    Example: holdfast config set log_level=debug
    """


@config.command("list")
@click.option("--address", metavar="HOST:PORT", help="A node, to show what it makes of each value.")
@json_option
@_place_options
@click.pass_context
def list_values(context: click.Context, address: str | None, as_json: bool, place: ConfigTopicPlace) -> None:
    """Show the settings of all nodes, also those that this version does not know.

    With --address it shows as well whether that node goes by each value, or why it does not: a flag of its own overrules it, it
    needs a restart, or the value is refused.

    Example: holdfast config list --address 127.0.0.1:9492
    """
    address = address or context.find_root().params.get("address")
    rows: list[dict[str, Any]] = [
        {"name": name, "value": value.text, "offset": value.offset, "taken_over": _when_taken_over(name)}
        for name, value in sorted(place.read().values.items())
    ]
    if address is not None:
        on_node = {row["name"]: row for row in admin(address, "config")["settings"]}
        for row in rows:
            read = on_node.get(row["name"])
            is_read = read is not None and read["offset"] >= row["offset"]
            row["on_node"] = read["on_node"] if read is not None and is_read else "not read yet"
    if as_json:
        print_json(rows)
    elif rows:
        print_rows(_COLUMNS if address is None else _NODE_COLUMNS, rows)
    else:
        say(f"The config topic {place.topic} sets nothing; `holdfast config set NAME=VALUE` does.")


@config.command("get")
@click.argument("name")
@_place_options
def get_value(name: str, place: ConfigTopicPlace) -> None:
    """Print the value that a setting has for all nodes.

    Example: holdfast config get log_level
    """
    found = place.read().values.get(name)
    if found is None:
        raise Failure(f"{name} is not set for all nodes; `holdfast config list` shows what is.", Exit.NOT_FOUND)
    click.echo(found.text)


@config.command("set")
@click.argument("assignments", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.option(
    _AHEAD,
    "is_ahead",
    is_flag=True,
    help="Set them also where there is no state topic yet, for the nodes that make it.",
)
@dry_run_option
@json_option
@_place_options
def set_values(
    assignments: Sequence[str], is_ahead: bool, dry_run: bool, as_json: bool, place: ConfigTopicPlace
) -> None:
    """Set settings for all nodes, after each was checked as a node would.

    A node takes over `log_level` at once, and all others when it starts.
    Settings that depend on each other are set by one command.

    Example: holdfast config set log_level=debug
    """
    try:
        wanted: dict[str, str | None] = {
            cluster_wide_name(name, SETTINGS): value
            for name, value in (split_assignment(text, "NAME=VALUE") for text in assignments)
        }
    except ConfigError as error:
        raise wrong_settings(error.problems) from None
    _change(place, wanted, dry_run, as_json, is_ahead=is_ahead)


@config.command("unset")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@dry_run_option
@json_option
@_place_options
def unset_values(names: Sequence[str], dry_run: bool, as_json: bool, place: ConfigTopicPlace) -> None:
    """Unset settings for all nodes: each node has its own again, or the default.

    Example: holdfast config unset log_level
    """
    _change(place, dict.fromkeys(names), dry_run, as_json)


def _change(
    place: ConfigTopicPlace,
    wanted: Mapping[str, str | None],
    is_dry_run: bool,
    is_json: bool,
    *,
    is_ahead: bool = False,
) -> None:
    before = place.read(is_ahead=is_ahead).texts()
    if missing := [name for name, value in wanted.items() if value is None and name not in before]:
        raise Failure(f"{', '.join(missing)} is not set for all nodes; {nearest(missing, before)}", Exit.NOT_FOUND)
    after = {name: value for name, value in {**before, **wanted}.items() if value is not None}
    try:
        check_cluster_change(before, after, SETTINGS)
    except ConfigError as error:
        raise wrong_settings(error.problems) from None
    changed = {name: value for name, value in wanted.items() if value != before.get(name)}
    if changed and not is_dry_run:
        place.write(changed)
    if is_json:
        print_json(
            {"before": before, "after": after, "changed": bool(changed) and not is_dry_run, "dry_run": is_dry_run}
        )
        return
    for name, value in wanted.items():
        say(f"{name}: {_text(before.get(name))} → {_text(value)}, taken over {_when_taken_over(name)}")
    if is_dry_run:
        say("Nothing was changed (--dry-run).")


def nearest(missing: Sequence[str], there: Iterable[str]) -> str:
    """Return what else may be meant by names that are not set."""
    near = [found for name in missing for found in get_close_matches(name, there, n=1)]
    return f"did you mean {' or '.join(near)}?" if near else "`holdfast config list` shows what is."


def _text(value: str | None) -> str:
    return "not set" if value is None else value


def _when_taken_over(name: str) -> str:
    try:
        if cluster_wide_name(name, SETTINGS) == name:
            return "at once" if name in TAKEN_OVER_WHILE_RUNNING else "when a node starts"
    except ConfigError as error:
        return f"by no node of this version: {error}"
    return "by no node of this version: it is another spelling"
