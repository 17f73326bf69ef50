"""Options that several commands have, and calls from a command to a node."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import isnan
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from holdfast.client import (
    AdminRefused,
    Client,
    ClientError,
    Disconnected,
    LoginRefused,
    RequestTimedOut,
    ShareStateError,
)
from holdfast.console.node_session import node_session
from holdfast.console.outcomes import Exit, Failure, exit_unanswered
from holdfast.console.show.output import say
from holdfast.console.show.waiting import waiting_for
from holdfast.console.sources.brokers_or_nodes import open_broker
from holdfast.kafka.addresses import parse_address
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import ConnectionOptions, connection_options
from holdfast.kafka.discovery.links import Links
from holdfast.kafka.errors import ConnectionFailed, PropertyRefused
from holdfast.kafka.protocol.error_codes import error_name
from holdfast.kafka.topic_ids import InvalidTopicId, parse_topic_id
from holdfast.records.share.batches import OFFSET_MAX, STATE_NAMES, StateBatch

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

ADDRESS_DEFAULT: Final = "127.0.0.1:9492"
STATE_TOPIC_DEFAULT: Final = "__holdfast_share_state"
SNAPSHOT_TOPIC_DEFAULT: Final = "holdfast-share-snapshots"
_CONNECT_TIMEOUT_MS: Final = 5_000

#: The largest numbers of Kafka's fields.
INT16_MAX: Final = (1 << 15) - 1
INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1

#: An epoch or a count, and an offset; -1 stands for none.
EPOCH_OR_NONE: Final = click.IntRange(-1, INT32_MAX)
OFFSET_OR_NONE: Final = click.IntRange(-1, INT64_MAX)
PARTITION: Final = click.IntRange(0, INT32_MAX)
OFFSET: Final = click.IntRange(0, INT64_MAX)

#: Digits of a number on the command line, zeros in front included; `int` refuses thousands of them.
DIGITS_MAX: Final = 100
_BATCH = re.compile(
    rf"(\d{{1,{DIGITS_MAX}}})(?:-(\d{{1,{DIGITS_MAX}}}))?:(\w{{1,{DIGITS_MAX}}}):(\d{{1,{DIGITS_MAX}}})"
)
_STATES = {name: state for state, name in STATE_NAMES.items()}

#: Name of an error of the coordinator to the next step of the user.
_NEXT_STEPS: Final = {
    "FENCED_STATE_EPOCH": "`holdfast state summary` shows the state epoch that is current",
    "FENCED_LEADER_EPOCH": "`holdfast state summary` shows the leader epoch that is current",
    "UNKNOWN_TOPIC_OR_PARTITION": "see whether the topic has this partition",
    "NOT_COORDINATOR": "`holdfast partitions` shows who owns its log partition",
    "COORDINATOR_LOAD_IN_PROGRESS": "try again when `holdfast partitions` shows that its log partition is active",
    "CLUSTER_AUTHORIZATION_FAILED": "`holdfast acls check` on the host of the node says what is lacking",
    "COORDINATOR_NOT_AVAILABLE": "`holdfast status` and `holdfast partitions` show what the node waits for",
}
#: How a command ends by an error of a node, by its name; with FAILED by all others.
_EXITS: Final = {
    "UNKNOWN_TOPIC_OR_PARTITION": Exit.NOT_FOUND,
    "GROUP_ID_NOT_FOUND": Exit.NOT_FOUND,
    "CLUSTER_AUTHORIZATION_FAILED": Exit.DENIED,
    "GROUP_AUTHORIZATION_FAILED": Exit.DENIED,
}


def nearest_address(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return the address that follows the command, or else precedes it; what the environment says comes after both."""
    nearest: click.Context | None = context
    while nearest is not None:
        if nearest.get_parameter_source("address") is ParameterSource.COMMANDLINE:
            return str(nearest.params.get("address", value))
        nearest = nearest.parent
    return value


def is_typed(name: str) -> bool:
    """Tell whether an option stands on the command line, with the command that runs or before it."""
    context = click.get_current_context(silent=True)
    while context is not None:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            return True
        context = context.parent
    return False


def named_servers(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return the brokers that the command line names as they are, each with its port.

    Raises:
        BadParameter: one is not HOST:PORT.
    """
    # A variable may be that of a node's setting, which leaves a port out at will.
    if context.get_parameter_source("bootstrap_server") is ParameterSource.COMMANDLINE:
        for server in filter(None, map(str.strip, value.split(","))):
            try:
                parse_address(server.rpartition("://")[2])
            except ValueError:
                raise click.BadParameter(
                    f"{server!r} is not HOST:PORT, as in 127.0.0.1:9092; the largest port is 65535"
                ) from None
    return value


address_option = click.option(
    "--address",
    callback=nearest_address,
    envvar="HOLDFAST_ADDRESS",
    show_envvar=True,
    default=ADDRESS_DEFAULT,
    show_default=True,
    metavar="HOST:PORT",
    help="A node; the others are learnt from it.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would be done, and do not do it.")


def kafka_options(command: F) -> F:
    """Add the options that name a Kafka cluster; the command gets `bootstrap_server` and `properties`."""
    bootstrap = click.option(
        "--bootstrap-server",
        callback=named_servers,
        envvar=["HOLDFAST_BOOTSTRAP", "HOLDFAST_KAFKA_BOOTSTRAP_SERVERS"],
        show_envvar=True,
        default="127.0.0.1:9092",
        show_default=True,
        metavar="HOST:PORT,...",
        help="Kafka brokers to begin with.",
    )
    properties = click.option(
        "--kafka",
        "properties",
        multiple=True,
        metavar="NAME=VALUE",
        help="A property of librdkafka, as in security.protocol=SASL_SSL.",
    )
    return bootstrap(properties(command))


def kafka_properties(bootstrap_server: str, properties: Sequence[str]) -> dict[str, str]:
    """Return the properties of librdkafka that the options of `kafka_options` give.

    Raises:
        BadParameter: one is not NAME=VALUE.
        Failure: one is unknown, or a value is wrong.
    """
    # Commands that query nodes alone need not wait for librdkafka.
    from holdfast.kafka.librdkafka import check_properties

    found = dict(split_assignment(text, "--kafka") for text in properties) | {"bootstrap.servers": bootstrap_server}
    try:
        check_properties(found)
    except PropertyRefused as error:
        raise Failure(f"{str(error).rstrip('.')}; see --bootstrap-server and --kafka.", Exit.WRONG_USAGE) from None
    return found


state_topic_option = click.option(
    "--state-topic",
    envvar="HOLDFAST_STATE_TOPIC",
    show_envvar=True,
    default=STATE_TOPIC_DEFAULT,
    show_default=True,
    metavar="TOPIC",
    help="The topic that is the log.",
)


def share_partition_options(command: F) -> F:
    """Add the options that name a share partition."""
    group = click.option("--group", required=True, help="Id of the share group.")
    topic = click.option("--topic", required=True, metavar="NAME_OR_ID", help="Topic, by its name or its id.")
    partition = click.option("--partition", type=PARTITION, required=True, help="Partition of the topic.")
    return group(topic(partition(command)))


def split_assignment(text: str, option: str) -> tuple[str, str]:
    """Return name and value of `NAME=VALUE`.

    Raises:
        BadParameter: it is anything else.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
    return name.strip(), value


def split_key(text: str) -> tuple[str, str, int]:
    """Return group, topic (a name or an id) and partition of `GROUP:TOPIC:PARTITION`.

    Raises:
        Failure: it is anything else.
    """
    pieces = text.rsplit(":", 2)
    if len(pieces) < 3 or not pieces[0] or not (pieces[2].isascii() and pieces[2].isdecimal()):
        raise Failure(f"{text!r} is not GROUP:TOPIC:PARTITION, as in orders-workers:orders:0.", Exit.WRONG_USAGE)
    if len(pieces[2]) > DIGITS_MAX or int(pieces[2]) > INT32_MAX:
        raise Failure(f"{text!r} names partition {pieces[2]}; the largest is {INT32_MAX}.", Exit.WRONG_USAGE)
    return pieces[0], pieces[1], int(pieces[2])


class Seconds(click.FloatRange):
    """A time in a range, in which `nan` is not: Python takes that for a number, and neither smaller nor larger than any."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Return the time in seconds.

        Raises:
            BadParameter: it is none, or not in the range.
        """
        seconds = super().convert(value, param, ctx)
        if isnan(seconds):
            self.fail(f"{value!r} is not a number", param, ctx)
        return seconds


class BatchType(click.ParamType[StateBatch]):
    """A state batch, as in `100-109:acknowledged:1`."""

    name = "FIRST-LAST:STATE:COUNT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> StateBatch:  # noqa: ANN401
        """Read a batch; a lone offset stands for a range of one, a state has a name or a number."""
        if isinstance(value, StateBatch):
            return value
        match = _BATCH.fullmatch(value)
        if match is None:
            self.fail(f"{value!r} is not FIRST-LAST:STATE:COUNT, as in 100-109:acknowledged:1", param, ctx)
        first, last, state, count = match.groups()
        if state not in _STATES and not state.isdecimal():
            self.fail(f"{value!r} has the state {state!r}; it is one of {', '.join(_STATES)} or a number", param, ctx)
        batch = StateBatch(int(first), int(last or first), _STATES.get(state, -1), int(count))
        if batch.delivery_state < 0:
            batch = batch._replace(delivery_state=int(state))
        if problem := _batch_problem(batch):
            self.fail(f"{value!r}: {problem}", param, ctx)
        return batch


def _batch_problem(batch: StateBatch) -> str:
    """Return why no coordinator takes a batch; empty where one may."""
    first_offset, last_offset, delivery_state, delivery_count = batch
    if last_offset > OFFSET_MAX:
        return f"the largest offset is {OFFSET_MAX}"
    if last_offset < first_offset:
        return "its last offset is below its first"
    if delivery_state not in STATE_NAMES:
        known = ", ".join(f"{number} ({name})" for number, name in STATE_NAMES.items())
        return f"its state is {delivery_state}; it is one of {known}"
    if delivery_count > INT16_MAX:
        return f"its delivery count is {delivery_count}; the largest is {INT16_MAX}"
    return ""


def query_node(address: str, query: Callable[[Client], Awaitable[T]]) -> T:
    """Query a node, all queries of a command the same one, and return the answer.

    Raises:
        Failure: the call failed; the message is one sentence with the next step.
    """
    try:
        with node_session() as session:
            return session.query(address, query)
    except ValueError as error:
        raise Failure(str(error), Exit.WRONG_USAGE) from None
    except (Disconnected, RequestTimedOut) as error:
        raise Failure(
            f"{error} Is the node running? See --address, and --command-config if it has TLS or logins.",
            Exit.UNREACHABLE,
        ) from None
    except LoginRefused as refusal:
        raise Failure(f"{refusal} See --command-config.", Exit.DENIED) from None
    except ShareStateError as error:
        raise failure_of(error) from None
    except (AdminRefused, ClientError) as error:
        name = error_name(error.code) if isinstance(error, AdminRefused) else ""
        raise Failure(under_typed_name(error), _EXITS.get(name, Exit.FAILED)) from None


def under_typed_name(error: ClientError) -> str:
    """Return the text of a refusal, which names the admin command that was sent, with the command that was typed."""
    context = click.get_current_context(silent=True)
    if not isinstance(error, AdminRefused) or context is None:
        return str(error)
    return str(error).replace(f"which {error.command} needs", f"which `{context.command_path}` needs")


def ask_brokers(
    properties: Mapping[str, str],
    question: Callable[[Links[BrokerConnection]], Awaitable[T]],
    timeout_ms: int = _CONNECT_TIMEOUT_MS,
) -> T:
    """Query the brokers of a Kafka over connections of our own, and return the answer.

    Args:
        properties: librdkafka's; `bootstrap.servers` at least.
        question: what is sent.
        timeout_ms: bounds connecting to each broker, and each answer, where it is shorter than usual.

    Raises:
        Failure: the call failed; the message is one sentence with the next step.
    """
    # It loads kio, which most commands do without.
    from holdfast.kafka.exchange import broker_links

    async def connected(options: ConnectionOptions) -> T:
        links = broker_links(options, min(timeout_ms, _CONNECT_TIMEOUT_MS), open_broker=open_broker)
        try:
            return await question(links)
        finally:
            links.close()

    try:
        options = connection_options(properties)
        with waiting_for(properties["bootstrap.servers"]):
            return asyncio.run(connected(options))
    except PropertyRefused as error:
        raise Failure(str(error), Exit.WRONG_USAGE) from None
    except ConnectionFailed as failure:
        text = f"Kafka does not answer ({failure}); see --bootstrap-server."
        raise Failure(text, exit_unanswered(failure)) from None


def admin(address: str, command: str, **arguments: Any) -> Any:  # noqa: ANN401
    """Send a node an admin command and return its answer.

    Raises:
        Failure: it could not be reached, or refused.
    """
    return query_node(address, lambda client: client.admin(command, **arguments))


def failure_of(error: ShareStateError) -> Failure:
    """Return the failure for an error of the coordinator, with the next step."""
    step = _NEXT_STEPS.get(error.name)
    text = str(error).removesuffix(".")
    return Failure(f"{text}; {step}." if step else f"{text}.", _EXITS.get(error.name, Exit.FAILED))


async def find_topic_id(client: Client, name_or_id: str) -> bytes:
    """Return the id of a topic given by its name or its id; a name that could be an id is a name first.

    Raises:
        Failure: the cluster knows no such topic.
        ClientError: the node does not answer.
    """
    try:
        found = await client.admin("resolve-topic", name=name_or_id)
    except (Disconnected, RequestTimedOut):
        raise
    except ClientError as refusal:
        try:
            return parse_topic_id(name_or_id)
        except InvalidTopicId:
            name = error_name(refusal.code) if isinstance(refusal, AdminRefused) else ""
            code = Exit.NOT_FOUND if name == "INVALID_REQUEST" else _EXITS.get(name, Exit.FAILED)
            raise Failure(under_typed_name(refusal), code) from None
    if "warning" in found:
        say(f"Warning: {found['warning']}")
    return parse_topic_id(found["topic_id"])
