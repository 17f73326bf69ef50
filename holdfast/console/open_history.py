"""The options by which `holdfast history` and `holdfast diff` name a history, and the history that they open."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import wraps
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.console.options import PARTITION, STATE_TOPIC_DEFAULT, kafka_options, kafka_properties, state_topic_option
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.output import say, time_text
from holdfast.console.sources.history_states import KeyFilter
from holdfast.console.sources.log_reader import LogReader
from holdfast.console.sources.topic_names import TopicNameCache
from holdfast.distribution import how_to_install
from holdfast.kafka.topic_ids import InvalidTopicId, parse_topic_id

if TYPE_CHECKING:
    from holdfast.console.sources.history_log import HistoryLog


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOptions:
    """The arguments and options by which a command names share partitions, the history and the log."""

    group: str | None
    topic: str | None
    partition: int | None
    history_dir: str
    job_group: str
    no_log: bool
    bootstrap_server: str
    properties: Sequence[str]
    state_topic: str


class OpenHistory(NamedTuple):
    """A history that a command reads, and the log after it."""

    log: "HistoryLog"
    wanted: KeyFilter
    begin_ms: int | None  #: time of the first change in the history
    has_tail: bool  #: whether the log is read as well
    names: TopicNameCache
    is_stopped: Event  #: set to stop reading the log: its reader then ends, or raises `Stopped`

    def warn_before_begin(self, time_ms: int | None) -> None:
        """Say that a time lies before all that is known."""
        if self.begin_ms is None:
            say("The history is empty so far.")
        elif time_ms is not None and time_ms < self.begin_ms:
            say(f"The history begins at {time_text(self.begin_ms)}; what was before is not known.")


def history_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments and options of `HistoryOptions`; the command gets them as `options`."""

    @click.argument("topic", required=False)
    @click.argument("partition", type=PARTITION, required=False)
    @click.option(
        "--history-dir",
        envvar="HOLDFAST_COMPACTION_HISTORY_DIR",
        show_envvar=True,
        required=True,
        metavar="PATH_OR_URI",
        help="Place of the history: the job's `compaction.history.dir`, a path or a URI (file, s3a, s3n, s3, abfs, abfss, "
        "gs, hdfs).",
    )
    @click.option(
        "--job-group",
        envvar="HOLDFAST_COMPACTION_GROUP",
        show_envvar=True,
        default="holdfast-compaction",
        show_default=True,
        metavar="GROUP",
        help="Consumer group of the job; how far it is counts where an earlier version wrote the history.",
    )
    @click.option(
        "--no-log",
        is_flag=True,
        help="Read the history only, and do without Kafka; topics are then named by their ids.",
    )
    @kafka_options
    @state_topic_option
    @wraps(command)
    def with_options(**arguments: Any) -> None:  # noqa: ANN401
        own = {field.name: arguments.pop(field.name) for field in fields(HistoryOptions)}
        command(options=HistoryOptions(**own), **arguments)

    return with_options


@contextmanager
def open_history(options: HistoryOptions) -> Iterator[OpenHistory]:
    """Give the history that options name, and the log after it; the log is closed with the block.

    Raises:
        Failure: the history cannot be read, or Kafka cannot be reached, or a topic is not known.
    """
    try:
        from holdfast.console.sources.history_files import HistoryFiles
        from holdfast.console.sources.history_log import HistoryLog
        from holdfast.history.place import HistoryPlace, HistoryProblem, Missing, Unusable
    except ImportError:
        raise Failure(f"The history is read with pyarrow, not installed here; {how_to_install('history')}.") from None
    try:  # before Kafka is reached, which does not know what is wrong with it
        place = HistoryPlace(options.history_dir)
    except HistoryProblem as problem:
        exits = {Missing: Exit.NOT_FOUND, Unusable: Exit.WRONG_USAGE}
        raise Failure(str(problem), exits.get(type(problem), Exit.FAILED)) from None
    with ExitStack() as stack:
        log, is_stopped = None, Event()
        if options.no_log:
            # The default name looks like an id.
            state_topic_id = None if options.state_topic == STATE_TOPIC_DEFAULT else _id_of(options.state_topic)
            topic_id = _id_of(options.topic)
        else:
            properties = kafka_properties(options.bootstrap_server, options.properties)
            log = LogReader(properties, options.state_topic, is_stopped)
            stack.callback(log.close)
            topic_id = None if options.topic is None else log.kafka.find_topic_id(options.topic)
            state_topic_id = log.kafka.topic_id(options.state_topic)
        if options.topic is not None and topic_id is None:
            raise Failure(
                f"{options.topic!r} is no topic id, and only Kafka knows names: leave --no-log out.", Exit.WRONG_USAGE
            )
        wanted = KeyFilter(options.group, topic_id, options.partition)
        changes = HistoryLog(HistoryFiles(place, state_topic_id), log, options.job_group, wanted)
        names = TopicNameCache(None if log is None else log.kafka)
        yield OpenHistory(changes, wanted, changes.begin_ms(), log is not None, names, is_stopped)


def _id_of(text: str | None) -> bytes | None:
    try:
        return None if text is None else parse_topic_id(text)
    except InvalidTopicId:
        return None
