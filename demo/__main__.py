"""The demonstration: a queue of orders is worked off; midway the daemon and a worker die at once; nothing is lost.

Then compaction folds the log, the daemon restores from the snapshots, the log is pruned, and the history has what is gone from it.
With several nodes the one that dies is the owner of the busiest log partition, and the others take over from it.
In the end a node is the gateway of an older Kafka: stock share consumers work off its orders, and the node is killed midway.

Example: python -m demo --nodes 3
"""

import argparse
import asyncio
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console

from demo.cluster import Cluster
from demo.display import Display, show_checks, show_log, show_orders, show_takeover
from demo.gateway import GatewayAct
from demo.history import HistoryAct, Moment
from demo.orders import place_orders
from demo.page import PageBeside
from demo.takeover import Takeover, find_busiest, watch
from demo.verdict import Check, judge, read_log
from demo.worker import GROUP, PATIENT, STATE_EPOCH, Ledger, Worker
from holdfast.broker import BrokerError, JarsUnavailable, development_kafka
from holdfast.client import connect
from holdfast.kafka.librdkafka import KafkaClients
from holdfast.kafka.topic_ids import parse_topic_id

PARTITIONS: Final = 4
ORDERS_PER_PARTITION: Final = 500
POWER_CUT_AT: Final = 0.5
#: The owner of the busiest log partition is found before, for the power cut is not to wait for it.
VICTIM_FOUND_AT: Final = 0.4
NODES_MAX: Final = 8
SEED: Final = 9492
_KAFKA_TIMEOUT_S: Final = 30.0


async def play(console: Console, bootstrap_servers: str, name: str, directory: Path, nodes: int) -> bool:
    """Play the demonstration on a topic; returns whether everything held that was to be proved."""
    state_topic = f"holdfast-{name}"
    topics = [name, state_topic]
    try:
        orders = place_orders(bootstrap_servers, name, PARTITIONS, ORDERS_PER_PARTITION, SEED)
        console.print(f"Placed {PARTITIONS * ORDERS_PER_PARTITION:,} orders in {PARTITIONS} partitions of {name}.")
        cluster = Cluster(bootstrap_servers, state_topic, directory, nodes)
        try:
            ready_s = await cluster.start()
            if nodes == 1:
                console.print(f"The daemon listens on {cluster.addresses[0]}; it was ready after {ready_s:.1f} s.")
            else:
                listening = ", ".join(cluster.addresses)
                ready = f"{nodes} nodes listen on {listening}; they had divided the log after {ready_s:.1f} s."
                console.print(ready, soft_wrap=not console.is_terminal)
            ledgers = {partition: Ledger() for partition in range(PARTITIONS)}
            async with connect(cluster.addresses, PATIENT) as client:
                topic_id = parse_topic_id((await client.admin("resolve-topic", name=name))["topic_id"])
                for partition in ledgers:
                    await client.initialize(GROUP, topic_id, partition, STATE_EPOCH, start_offset=0)
            with Display(console, PARTITIONS, ORDERS_PER_PARTITION) as display:
                is_restored, power_cut, takeover = await work(
                    cluster, bootstrap_servers, (name, topic_id), ledgers, display
                )
            contents = read_log(bootstrap_servers, state_topic)
            show_orders(console, ledgers, contents)
            show_log(console, contents)
            if takeover is not None:
                show_takeover(console, takeover)
            async with connect(cluster.addresses, PATIENT) as client:
                checks = await judge(client, topic_id, orders, ledgers, contents)
            daemon = await cluster.shrink()
            if nodes > 1:
                console.print(f"\nThe other nodes stop; the one on {daemon.address} has the whole log now.")
            second_act = HistoryAct(console, daemon, bootstrap_servers, name, directory)
            topics += second_act.topics
            await second_act.play(orders, power_cut)
        finally:
            exit_codes = cluster.stop()
        stopped = "The daemon stops" if nodes == 1 else "All nodes that were not killed stop"
        checks += [
            *second_act.checks,
            Check("The worker that took over found all that its predecessor was answered.", is_restored),
            *(takeover.checks if takeover is not None else ()),
            Check(f"{stopped} cleanly (exit code 0).", all(code == 0 for code in exit_codes)),
        ]
        show_checks(console, checks)
        return all(check.holds for check in checks)
    finally:
        with KafkaClients({"bootstrap.servers": bootstrap_servers}).admin() as admin:
            for deleted in admin.delete_topics(topics).values():
                deleted.exception(_KAFKA_TIMEOUT_S)


async def work(
    cluster: Cluster, bootstrap_servers: str, topic: tuple[str, bytes], ledgers: dict[int, Ledger], display: Display
) -> tuple[bool, Moment, Takeover | None]:
    """Work off all orders through a power cut.

    Returns:
        Whether the worker that took over found what was answered, what was answered at the power cut, and how other nodes
        took over, where there are any.
    """
    victim_due, power_cut = asyncio.Event(), asyncio.Event()
    alone = len(cluster.nodes) == 1

    def about_to_write() -> None:
        if display.share_finished >= VICTIM_FOUND_AT:
            victim_due.set()
        if display.share_finished >= POWER_CUT_AT:
            power_cut.set()

    def worker(name: str, partitions: range) -> Worker:
        led = {partition: ledgers[partition] for partition in partitions}
        return Worker(
            name,
            cluster.addresses,
            bootstrap_servers,
            topic,
            led,
            ORDERS_PER_PARTITION,
            about_to_write,
            display.progressed,
        )

    half = PARTITIONS // 2
    display.say("Worker A leads the first half of the partitions, worker B the other.")
    async with asyncio.TaskGroup() as pool:
        doomed = pool.create_task(worker("A", range(half)).run())
        pool.create_task(worker("B", range(half, PARTITIONS)).run())
        await victim_due.wait()
        served = await cluster.served()
        victim = served[find_busiest(served)].node_id
        # By then that write has left and its answer has not come: the worst moment there is.
        await power_cut.wait()
        cluster.kill(victim)
        killed_s = time.monotonic()
        doomed.cancel()
        moment = Moment.now(ledgers)
        outstanding = sum(led.outstanding is not None for led in ledgers.values())
        answered = sum(led.writes for led in ledgers.values())
        killed = "the daemon" if alone else f"node {victim}, the owner of the busiest log partition,"
        display.say(
            f"[bold]Power cut:[/] {killed} and worker A got killed; {answered} writes were answered, {outstanding} on the way."
        )
        takeover = None
        if alone:
            ready_s = await cluster.restart(victim)
            loaded = await cluster.nodes[victim].query("partitions")
            display.say(
                f"The daemon is back: ready {ready_s:.1f} s after its start, {sum(each['records_loaded'] for each in loaded):,} "
                f"records of {len(loaded)} log partitions loaded, none in more than {max(each['load_ms'] for each in loaded)} ms."
            )
        else:
            takeover = await watch(cluster, topic[1], PARTITIONS, served, killed_s)
            display.say(takeover.summary())
        display.say("Worker C takes over from worker A, and knows only what the daemon answers.")
        successor = worker("C", range(half))
        pool.create_task(successor.run())
    return len(successor.restored) == half and all(successor.restored.values()), moment, takeover


@contextmanager
def kafka(console: Console) -> Iterator[str]:
    """Give a Kafka and say how long it took."""
    began_s = time.monotonic()
    with development_kafka() as bootstrap_servers:
        console.print(f"Kafka listens on {bootstrap_servers}; it was ready after {time.monotonic() - began_s:.1f} s.")
        yield bootstrap_servers


def main() -> int:
    """Run the demonstration; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m demo", description="A queue that survives sudden deaths.")
    parser.add_argument("--nodes", type=int, default=1, choices=range(1, NODES_MAX + 1), help="how many nodes")
    nodes: int = parser.parse_args().nodes
    console, began_s = Console(highlight=False), time.monotonic()
    page = PageBeside(console)
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as directory, kafka(console) as bootstrap_servers:
            name = f"demo-orders-{uuid.uuid4().hex[:8]}"
            with page.showing(bootstrap_servers, f"holdfast-{name}", Path(directory)):
                holds = asyncio.run(play(console, bootstrap_servers, name, Path(directory), nodes))
        with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as directory:
            gateway = GatewayAct(console, Path(directory), page)
            asyncio.run(gateway.play())
            show_checks(console, gateway.checks)
            holds = holds and all(check.holds for check in gateway.checks)
    except (BrokerError, JarsUnavailable, RuntimeError, TimeoutError) as failure:
        print(f"Error: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    console.print(
        f"\n{'All of it held' if holds else 'Something did not hold'}, in {time.monotonic() - began_s:.0f} s."
    )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
