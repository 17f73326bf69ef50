"""From the settings of a node to what each of its components is given.

A component has its own frozen configuration and knows no settings; here, and nowhere else, the one becomes the other.
A field that is a setting has the setting's name and gets its value by it; the others are given by hand below.
"""

from collections.abc import Callable
from typing import Final

from holdfast.daemon.pruning.log_readers import Change, LogReaders
from holdfast.daemon.settings.by_name import configure
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.librdkafka import Say, unsaid
from holdfast.runtime.kafka_log.log import KafkaLogConfig
from holdfast.runtime.settings import LogIdentity, PartitionConfig

#: Time for which a broker may hold an empty fetch of the config topic or of the snapshot topic: no client waits for their records.
_QUIET_FETCH_WAIT_MS: Final = 500
#: Such fetches that a broker answers before it would count as silent.
_QUIET_FETCHES_PER_SILENCE: Final = 4
#: An append that is neither read back nor reported as failed is given up after so many times its own timeout.
_MESSAGE_TIMEOUTS_PER_STALL: Final = 2


def partition_config(
    settings: Settings, log: LogIdentity, advertised_address: str, write_timeout_ms: int
) -> PartitionConfig:
    """Return what each log partition is given; clients reach this node at `advertised_address` (`host:port`)."""
    return configure(
        PartitionConfig,
        settings.log,
        settings.load,
        node_id=str(settings.node_id),
        log=log,
        advertised_address=advertised_address,
        write_timeout_ms=write_timeout_ms,
        append_stall_ms=_MESSAGE_TIMEOUTS_PER_STALL * settings.log.message_timeout_ms,
    )


def state_log_config(
    settings: Settings, topic: StateTopic, connection: ConnectionOptions, say: Say = unsaid
) -> KafkaLogConfig:
    """Return how the log itself is written and read; `say` takes the lines of librdkafka."""
    return configure(
        KafkaLogConfig,
        settings.log,
        topic=topic.name,
        topic_id=topic.topic_id,
        connection=connection,
        message_bytes_max=topic.max_message_bytes,
        client=settings.log_client.client,
        say=say,
    )


def quiet_log_config(settings: Settings, topic: str, connection: ConnectionOptions) -> KafkaLogConfig:
    """Return how a topic that seldom changes is read, that of the snapshots or of the settings; nothing is appended to it by this way."""
    silence_max_ms = settings.log.leader_silence_max_ms
    return configure(
        KafkaLogConfig,
        settings.log,
        topic=topic,
        connection=connection,
        message_bytes_max=0,
        client=settings.log_client.client,
        fetch_wait_ms=min(_QUIET_FETCH_WAIT_MS, silence_max_ms // _QUIET_FETCHES_PER_SILENCE),
        busy_poll_us=0,  # no client waits for it
    )


def log_readers(
    settings: Settings, clock_ms: Callable[[], int], on_change: Callable[[Change, str, int], None]
) -> LogReaders:
    """Return the readers that are registered: those an admin named, and the job that writes the snapshot topic.

    A job that no node runs holds nothing before its first commit: one that runs elsewhere is known by its commits.
    """
    pruning, compaction = settings.pruning, settings.compaction
    job = (compaction.group,) if settings.snapshots.topic else ()
    return LogReaders(
        (*pruning.log_readers, *job),
        pruning.reader_timeout_ms,
        clock_ms,
        on_change,
        from_first_commit=() if compaction.run else set(job) - set(pruning.log_readers),
        drop_after_ms=pruning.reader_drop_after_ms,
    )
