"""How fast a coordinator loads a long history after a start, from the beginning of its first load to the end of its last."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.client import BenchmarkError, wait_until
from benchmarks.cluster import broker_pids, create_topic, running_kafka
from benchmarks.contenders import STATE_PARTITIONS, Contender, PartitionLoad
from benchmarks.history import Appender, History, write_history
from benchmarks.machine import cpu_seconds, memory_mib
from benchmarks.share_state import TOPIC_PARTITIONS, ConnectionKeys, check_all, find_keys
from benchmarks.suites import Say

_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.load.properties")
_LOAD_TIMEOUT_S: Final = 300.0
#: Contenders that read every record of the history.
WHOLE: Final = ("kafka", "holdfast")


def run_loads(contenders: Sequence[Contender], history: History, repeats: int, say: Say) -> list[dict[str, Any]]:
    """Let the contenders load the same history in turns; each load is followed by a look at every state.

    Raises:
        BenchmarkError: a load took too long or skipped records, or a state is not what was written.
    """
    runs: list[dict[str, Any]] = []
    with running_kafka(1, _LOG_SETTINGS) as kafka:
        topic_id = create_topic(kafka)
        records: dict[str, int] = {}
        try:
            for contender in contenders:
                contender.start(kafka)
                find_keys(contender.address, topic_id, 1, "first")  # The state topic is there now.
                contender.halt()
                records[contender.name] = _write(contender, kafka.bootstrap_servers, history, topic_id)
                contender.prepare()
                say(f"load: {records[contender.name]:,} records lie in {contender.state_topic}")
            for repeat in range(repeats):
                for contender in contenders:
                    contender.restart()
                    run = _measure(contender, records[contender.name])
                    processes = contender.process_ids or broker_pids(kafka)
                    run |= {"contender_memory_mib": memory_mib(processes), "process_cpu_s": cpu_seconds(processes)}
                    run |= {"repeat": repeat, "read_back": check_all(_expected(contender, history, topic_id))}
                    contender.halt()
                    runs.append(run)
                    say(
                        f"load {repeat + 1} {contender.name:18} {run['records']:,} records in {run['seconds']:.2f} s: "
                        f"{run['records_per_s']:,.0f} records/s"
                    )
        finally:
            for contender in contenders:
                contender.stop()
    return runs


def _write(contender: Contender, bootstrap_servers: str, history: History, topic_id: bytes) -> int:
    checkpoint = contender.first_checkpoint()
    appender = Appender(bootstrap_servers, contender.state_topic, STATE_PARTITIONS, checkpoint)
    keys = history.share_partitions(topic_id, TOPIC_PARTITIONS)
    return write_history(history, keys, contender.codec, appender, STATE_PARTITIONS)


def _measure(contender: Contender, written: int) -> dict[str, Any]:
    def all_loads() -> list[PartitionLoad] | None:
        # The last load of each: on a busy machine a partition may be moved, and loaded again, while it starts.
        newest = {load.partition: load for load in contender.loads()}
        return list(newest.values()) if len(newest) == STATE_PARTITIONS else None

    loads = wait_until(f"The load of {contender.name}", all_loads, _LOAD_TIMEOUT_S)
    records = sum(load.records for load in loads)
    if records < written and contender.name in WHOLE:
        raise BenchmarkError(f"{contender.name} loaded {records} of {written} records.")
    seconds = max(load.ended_s for load in loads) - min(load.began_s for load in loads)
    return {
        "contender": contender.name,
        "api": "load",
        "keys": 1,
        "connections": 1,
        "records": written,
        "records_read": records,
        "seconds": seconds,
        "records_per_s": written / seconds,
    }


def _expected(contender: Contender, history: History, topic_id: bytes) -> list[ConnectionKeys]:
    """Return the states of the whole history by group."""
    by_group: dict[str, list[int]] = {}
    for key in history.share_partitions(topic_id, TOPIC_PARTITIONS):
        by_group.setdefault(key.group_id, []).append(key.partition)
    expected = []
    for group_id, partitions in by_group.items():
        keys = ConnectionKeys(contender.address, group_id, topic_id, partitions)
        keys.states = [history.final_state(partition) for partition in partitions]
        expected.append(keys)
    return expected
