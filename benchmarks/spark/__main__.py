"""Measure the Spark job: a log of updates folded into entries, manifests and history, beside what Spark takes to read it.

Example: python -m benchmarks.spark --records 1000000 --keys 20000 --cores 2
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.history import Appender, History, write_history
from benchmarks.spark.contenders import CONTENDERS
from holdfast.broker import development_kafka
from holdfast.compaction.config import CompactionConfig
from holdfast.daemon.settings.by_name import configure
from holdfast.daemon.settings.components.log import LogSettings
from holdfast.daemon.settings.components.snapshots import CompactionSettings
from holdfast.records.log.checkpoint import Checkpoint
from holdfast.records.share.codecs.codec import Codec

STATE_TOPIC: Final = "state"
SNAPSHOT_TOPIC: Final = "snapshots"
#: What is given as medians of the repeats.
MEDIANS: Final = ("seconds", "with_start_seconds", "java_cpu_s", "python_cpu_s")
#: Times of the quick floor's seconds that the job may take.
MARK: Final = 1.8


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000, help="updates in the log")
    parser.add_argument("--keys", type=int, default=20_000, help="share partitions")
    parser.add_argument("--log-partitions", type=int, default=50)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--batches", type=int, default=1, help="batches that the job takes, roughly")
    parser.add_argument("--no-history", action="store_true", help="the job writes none")
    parser.add_argument("--contender", choices=CONTENDERS, action="append", help="these (default: all)")
    parser.add_argument("--repeats", type=int, default=1, help="times that each is measured, in turns")
    parser.add_argument(
        "--spark", action="append", default=[], metavar="NAME=VALUE", help="a property of Spark, over ours"
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        print(json.dumps(CONTENDERS[options.contender[0]](CompactionConfig(**json.loads(options.worker)))))
        return 0
    with development_kafka() as bootstrap_servers, tempfile.TemporaryDirectory() as scratch:
        _make_log(bootstrap_servers, options)
        found: dict[str, list[dict[str, Any]]] = {contender: [] for contender in options.contender or CONTENDERS}
        for repeat in range(options.repeats):
            for contender, results in found.items():
                results.append(_run(_config(options, bootstrap_servers, f"{scratch}/{contender}-{repeat}"), contender))
                print(contender, json.dumps(results[-1]), flush=True)
    _print_medians(found)
    return 0


def _config(options: argparse.Namespace, bootstrap_servers: str, directory: str) -> CompactionConfig:
    return configure(
        CompactionConfig,
        CompactionSettings(),
        LogSettings(),
        bootstrap_servers=bootstrap_servers,
        state_topic=STATE_TOPIC,
        snapshot_topic=SNAPSHOT_TOPIC,
        group=Path(directory).name,
        checkpoint_dir=f"{directory}/checkpoint",
        history_dir="" if options.no_history else f"{directory}/history",
        master=f"local[{options.cores}]",
        state_partitions=options.cores * 4,
        offsets_per_trigger_max=-(-2 * options.records // options.batches),
        spark_properties=dict(each.split("=", 1) for each in options.spark),
    )


def _run(config: CompactionConfig, contender: str) -> dict[str, Any]:
    """Measure in a process of its own, whose Java is as cold as another one's."""
    command = [sys.executable, "-m", "benchmarks.spark", "--contender", contender, "--worker"]
    done = subprocess.run([*command, json.dumps(asdict(config))], stdout=subprocess.PIPE, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _print_medians(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    medians = {
        contender: {name: median(result[name] for result in results) for name in MEDIANS}
        for contender, results in found.items()
    }
    for contender, names in medians.items():
        print(f"median of {contender}", json.dumps(names))
    if found.keys() >= {"quick-floor", "job"}:
        pairs = zip(found["quick-floor"], found["job"], strict=True)
        turns = [job["seconds"] / floor["seconds"] for floor, job in pairs]
        floor, job = medians["quick-floor"], medians["job"]
        seconds = job["seconds"] / floor["seconds"]
        # Work elsewhere on the machine makes both wait, but not equally long.
        processor = _processor_s(job) / _processor_s(floor)
        print(
            f"job / quick-floor: {seconds:.2f} by seconds (mark {MARK}), in turns "
            f"{', '.join(f'{turn:.2f}' for turn in turns)}; {processor:.2f} by the processor, with the start of Spark"
        )


def _processor_s(names: Mapping[str, float]) -> float:
    return names["java_cpu_s"] + names["python_cpu_s"]


def _make_log(bootstrap_servers: str, options: argparse.Namespace) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [
        NewTopic(STATE_TOPIC, options.log_partitions, 1),
        NewTopic(SNAPSHOT_TOPIC, options.log_partitions, 1, config={"cleanup.policy": "compact"}),
    ]
    for made in admin.create_topics(topics).values():
        made.result(30)
    history = History(updates=options.records, keys=options.keys)
    keys = history.share_partitions(bytes(range(16)), 64)
    checkpoint = Checkpoint(1, bytes(16), "a", 1, "cluster", bytes(16), options.log_partitions, None)
    appender = Appender(bootstrap_servers, STATE_TOPIC, options.log_partitions, checkpoint)
    began = time.perf_counter()
    written = write_history(history, keys, Codec.AVRO, appender, options.log_partitions)
    print(f"{written} records written in {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
