"""A node, its log and its callers, driven by lines of text: each command returns everything that it caused, as lines.

The runtime is the real one; the log, the host and the machines (counters) do what the test says and report the calls that they get.
Nothing happens by itself: appends stay in flight until they `land`, records are read back when the log is `read`.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from holdfast.metrics.registry import Registry
from holdfast.records.log.checkpoint import (
    CHECKPOINT_KEY,
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
    is_checkpoint_key,
)
from holdfast.records.log.header import decode_header, encode_header, is_foreign
from holdfast.runtime.coordinator import CoordinatorRuntime
from holdfast.runtime.errors import Alarm, AppendRefused, CoordinatorError
from holdfast.runtime.log_protocol import ReadError
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State
from holdfast.runtime.settings import LogIdentity, PartitionConfig, Surroundings
from tests.configs import partition_config
from tests.pure.runtime.counter import Add, Bugs, Counter
from tests.simulated.memory_log import Append, MemoryTopic

IDENTITY = LogIdentity("cluster", b"t" * 16, 2)
WRITE_TIMEOUT_MS = 200
SLICE_MS = 5
CONFIG = partition_config(
    node_id="a",
    log=IDENTITY,
    parked_writes_max=4,
    load_timeout_ms=1_000,
    load_stall_ms=300,
    retry_backoff_ms=100,
    retry_backoff_max_ms=400,
    alarm_backoff_ms=800,
    write_timeout_ms=WRITE_TIMEOUT_MS,
    slice_ms=SLICE_MS,
)
#: Fields of every log line that say where it comes from.
ORIGIN = {"partition", "state", "generation", "exc_info"}


class World:
    """Everything around one runtime, and the commands that move it; also its `Host` and, before the log in memory, its `Log`.

    Each thing that the log reports is a command. With options it is reported as they say, however odd: late, twice, or to an
    instance that is gone.
    """

    def __init__(self, config: PartitionConfig = CONFIG) -> None:
        self.now_ms = 0
        self.bugs = Bugs()
        self.topic = MemoryTopic(IDENTITY.partition_count)
        self.log = self.topic.open_log()
        self.log.has_batches = False  # `read-own` says when
        self.turns: deque[Callable[[], None]] = deque()
        #: Callbacks at the end of turns in which loads work; None: each command is a turn of its own.
        self.load_turns: list[Callable[[], None]] | None = None
        self.told: list[str] = []
        self.answered: set[str] = set()
        self._refusals: dict[int, str] = {}  #: how many appends from now -> why it is refused
        self._machines = 0
        self._attempts = 0
        self._round = 0
        self._asked: dict[int, list[int]] = {}  #: partitions by round
        self._on_answer: dict[str, str] = {}  #: operation -> command to run when it is answered
        self.runtime = CoordinatorRuntime(
            config,
            self,
            self,
            self._make_machine,
            Surroundings(lambda: self.now_ms, self._random_bytes, lambda: 1.0),
            RuntimeMetrics(Registry()),
        )
        self.log.start(self.runtime)

    # ---- commands --------------------------------------------------------------------------------------------------

    def run(self, line: str) -> list[str]:
        """Carry out one command and return what happened, checking the invariants of every partition after it."""
        self.told = []
        if line.startswith("given "):
            self._run(line.removeprefix("given "))
            self.told = []
            self._run("status " + " ".join(word for word in line.split() if word == "@1"))
        else:
            self._run(line)
        for partition in self.runtime.partitions.values():
            partition.validate()
        return self.told

    def _run(self, line: str) -> None:
        words = line.split()
        index = 1 if "@1" in words else 0
        options = dict(word.split("=", 1) for word in words if "=" in word)
        name, *arguments = [word for word in words if "=" not in word and word != "@1"]
        command = getattr(self, "_do_" + name.replace("-", "_"))
        command(index, arguments, options)

    def _do_load(self, index: int, _: list[str], options: dict[str, str]) -> None:
        generation = options.get("generation")
        self.runtime.load(index, None if generation is None else int(generation))

    def _do_unload(self, index: int, _: list[str], options: dict[str, str]) -> None:
        generation = options.get("generation")
        self.runtime.unload(index, None if generation is None else int(generation))

    def _do_take(self, index: int, _: list[str], __: dict[str, str]) -> None:
        self.runtime.take(index)

    def _do_accept(self, index: int, arguments: list[str], _: dict[str, str]) -> None:
        self.runtime.accept(index, arguments[0])

    def _do_bounds(self, index: int, _: list[str], options: dict[str, str]) -> None:
        if options:
            start, end = int(options["start"]), int(options["end"])
            self.runtime.read_started(index, int(options["instance"]), start, end)
        else:
            self._move("begin", index)

    def _do_read(self, index: int, arguments: list[str], options: dict[str, str]) -> None:
        if options:
            instance = int(options["instance"])
            self.runtime.records_read(
                index, instance, self.log.take(index, instance, len(self.topic.partitions[index].records))
            )
        elif arguments:
            self.log.read(index, int(arguments[0]))
        else:
            self._move("read", index)

    def _do_read_own(self, index: int, arguments: list[str], options: dict[str, str]) -> None:
        """Report the next records as one batch of ours, without their content, and again one by one if it is not taken."""
        instance = int(options.get("instance", self.runtime.partitions[index].reading.instance))
        records = self.log.take(index, instance, int(arguments[0]))
        header = records[0].header
        assert header is not None
        if not self.runtime.own_records_read(index, instance, records[0].offset, len(records), header):
            self.told.append("not taken as ours")
            self.runtime.records_read(index, instance, records)

    def _do_position(self, index: int, arguments: list[str], options: dict[str, str]) -> None:
        """Tell that the tail stands at an offset: what lay below is no record, as a transaction's marker is none."""
        instance = int(options.get("instance", self.runtime.partitions[index].reading.instance))
        self.runtime.position_reached(index, instance, int(arguments[0]))

    def _do_caught_up(self, index: int, _: list[str], options: dict[str, str]) -> None:
        if options:
            self.runtime.caught_up(index, int(options["instance"]), self.log.read_offset(index))
        else:
            self._move("catch up", index)

    def _do_turn(self, _: int, __: list[str], ___: dict[str, str]) -> None:
        self.turns.popleft()()

    def _do_finish(self, index: int, arguments: list[str], options: dict[str, str]) -> None:
        """Let a load that has begun go on to its end."""
        self._do_bounds(index, [], {})
        self._do_read(index, [], {})
        self._do_caught_up(index, [], {})
        self._do_land(index, [], {})
        self._do_read(index, [], {})
        while self.turns:
            self.turns.popleft()()

    def _do_serve(self, index: int, arguments: list[str], options: dict[str, str]) -> None:
        """Load from beginning to end."""
        self._do_load(index, arguments, options)
        self._do_finish(index, [], {})

    def _do_land(self, index: int, arguments: list[str], _: dict[str, str]) -> None:
        for _number in range(int(arguments[0]) if arguments else len(self._in_flight(index))):
            self.log.land(index)
        self.topic.commit(index)

    def _do_lose(self, index: int, _: list[str], __: dict[str, str]) -> None:
        self.log.lose(index)

    def _do_fail(self, index: int, arguments: list[str], _: dict[str, str]) -> None:
        """Report the oldest append in flight as failed, or the one under an epoch and a sequence (`fail 1 2`); it may still land."""
        named = [int(number) for number in arguments]
        header = encode_header(*named) if named else self._in_flight(index)[0].header
        self.runtime.append_failed(index, header, "Local: Message timed out")

    def _do_replace_producer(self, _: int, __: list[str], ___: dict[str, str]) -> None:
        """Tell every partition that an append failed, and not which."""
        for index in self.runtime.partitions:
            self.runtime.append_failed(index, None, "Local: Fatal error")

    def _do_refuse(self, _: int, arguments: list[str], __: dict[str, str]) -> None:
        """Refuse the n-th append from now: `refuse 1 too-large`."""
        self._refusals[int(arguments[0])] = arguments[1]

    def _do_append(self, index: int, arguments: list[str], options: dict[str, str]) -> None:
        """Append as another writer would: data (`+5`), a `checkpoint`, a `foreign` record, `garbage`, or a copy (`again`)."""
        what, put = arguments[0], partial(self.topic.write_foreign, index)
        header = encode_header(int(options.get("epoch", 0)), int(options.get("sequence", 0)))
        if what == "checkpoint":
            put(CHECKPOINT_KEY, encode_checkpoint(_checkpoint(options)), header)
        elif what == "foreign":
            put(b"key", b"value", bytes.fromhex(options["header"]) if "header" in options else None)
        elif what == "garbage":
            put(b"key", b"value", b"\x09of a later version")
        elif what == "null":
            put(b"n", None, header)
        elif what == "again":
            self.topic.repeat(index, int(options["offset"]))
        else:
            put(b"n", what.encode(), header)
        self.topic.commit(index)

    def _do_cut(self, index: int, arguments: list[str], _: dict[str, str]) -> None:
        self.topic.cut(index, int(arguments[0]))

    def _do_shorten(self, index: int, arguments: list[str], _: dict[str, str]) -> None:
        """Lose the log's end from an offset on."""
        self.topic.partitions[index].high_watermark = int(arguments[0])
        self.topic.lose_uncommitted(index)

    def _do_write(self, index: int, arguments: list[str], options: dict[str, str]) -> None:
        """Write: `write NAME [+number…|malformed|bug|refused]`, with `then=COMMAND` run inside its completion."""
        name, *rest = arguments
        kinds = [word for word in rest if word[0] not in "+-"]
        numbers = [int(word) for word in rest if word[0] in "+-"]
        if "then" in options:
            self._on_answer[name] = options["then"].replace("_", " ").replace(":", "=")
        self.runtime.write(index, Add(name, numbers, kinds[0] if kinds else "add", self._completed))

    def _do_query(self, index: int, _: list[str], __: dict[str, str]) -> None:
        found = self.runtime.read(index, lambda machine, position: f"{machine.committed_value} at {position}")
        self.told.append(_outcome(found))

    def _do_index(self, index: int, arguments: list[str], options: dict[str, str]) -> None:
        """Answer the newest round (or `round=N`) for all its partitions: with the log's end, an offset, or `unknown`."""
        number = int(options.get("round", self._round))
        asked = self._asked[number]
        offsets: dict[int, int | None] = {
            partition: self.topic.partitions[partition].high_watermark for partition in asked
        }
        if arguments:
            offsets = dict.fromkeys(asked, None if arguments[0] == "unknown" else int(arguments[0]))
        self.runtime.latest_offsets(number, offsets)

    def _do_wait(self, _: int, arguments: list[str], __: dict[str, str]) -> None:
        """Let time pass, then tick."""
        self.now_ms += int(arguments[0])
        self.runtime.tick()

    def _do_image(self, _: int, arguments: list[str], __: dict[str, str]) -> None:
        self.runtime.new_metadata_image(arguments[0])

    def _do_read_failed(self, index: int, arguments: list[str], options: dict[str, str]) -> None:
        instance = int(options.get("instance", self.runtime.partitions[index].reading.instance))
        self.runtime.read_failed(index, instance, ReadError("a broken disk", is_alarm=arguments == ["alarm"]))

    def _do_refresh(self, index: int, _: list[str], __: dict[str, str]) -> None:
        self.told.append(f"refresh {'sent' if self.runtime.refresh(index) else 'not sent'}")

    def _do_prune(self, index: int, arguments: list[str], _: dict[str, str]) -> None:
        self.runtime.delete_records(index, int(arguments[0]))

    def _do_bug(self, _: int, arguments: list[str], __: dict[str, str]) -> None:
        """Arm a bug in a method of the machines; `bug slices 2` makes the next load ask for two more turns."""
        if arguments[0] == "slices":
            self.bugs.slices = int(arguments[1])
        else:
            self.bugs.armed.append(arguments[0])

    def _do_distrust(self, _: int, arguments: list[str], __: dict[str, str]) -> None:
        self.runtime.distrust_log(Alarm(" ".join(arguments)))

    def _do_trust(self, _: int, __: list[str], ___: dict[str, str]) -> None:
        self.runtime.trust_log()

    def _do_close(self, _: int, __: list[str], ___: dict[str, str]) -> None:
        self.runtime.close()

    def _do_log(self, index: int, _: list[str], __: dict[str, str]) -> None:
        log = self.topic.partitions[index]
        self.told += [f"{record.offset}: {_describe(*record[1:])}" for record in log.records[log.log_start_offset :]]
        self.told += [f"in flight: {_describe(each.key, each.value, each.header)}" for each in self._in_flight(index)]

    def _do_status(self, index: int, _: list[str], __: dict[str, str]) -> None:
        partition = self.runtime.partitions[index]
        words = [partition.state.value]
        if partition.state is State.ACTIVE:
            machine = partition.machine
            assert isinstance(machine, Counter)
            words += [
                f"epoch {partition.ownership.epoch} generation {partition.generation}",
                f"written {partition.ownership.sequence - 1}",
                f"committed {partition.committed_sequence}",
                f"can undo {[position for position, _ in machine.undo]}",
                f"value {machine.value}",
                f"next offset {partition.reading.position}",
                f"waiting {len(partition.parking)}",
            ]
        elif partition.failure:
            words.append(partition.failure)
        if partition.is_alarmed:
            words.append("alarmed")
        if partition.retry_at_ms is not None:
            words.append(f"loads again at {partition.retry_at_ms} ms")
        self.told.append(", ".join(words))

    # ---- the log in memory -----------------------------------------------------------------------------------------

    def _move(self, kind: str, index: int) -> None:
        """Let the log report something of a log partition, if there is anything."""
        for move in self.topic.moves():
            if move.partition == index and move.kind in (kind, f"late {kind}"):
                move.make()
                break

    def _in_flight(self, index: int) -> deque[Append]:
        return self.log.in_flight.get(index, deque())

    # ---- the runtime asks the log ----------------------------------------------------------------------------------

    def append(self, partition: int, key: bytes, value: bytes | None, header: bytes) -> None:
        reason = self._refusals.get(1)
        self._refusals = {number - 1: why for number, why in self._refusals.items() if number > 1}
        if reason == "bug":
            raise RuntimeError("a bug in append")
        if reason is not None:
            self.told.append(f"log refuses {_describe(key, value, header)}")
            raise AppendRefused(reason, is_too_large=reason == "too-large")
        self.told.append(f"append {_describe(key, value, header)}" + _on(partition))
        self.log.append(partition, key, value, header)

    def start_reading(self, partition: int, instance: int, from_offset: int = 0) -> None:
        where = f" from {from_offset}" if from_offset else ""
        self.told.append(f"start reading{where}, instance {instance}" + _on(partition))
        self.log.start_reading(partition, instance, from_offset)

    def stop_reading(self, partition: int) -> None:
        self.told.append("stop reading" + _on(partition))
        self.log.stop_reading(partition)

    def query_log_start(self, partition: int, instance: int) -> None:
        self.told.append("ask log start" + _on(partition))

    def flush_if_all_wait(self) -> None:
        """See `Log.flush_if_all_wait`: nothing waits."""

    def query_latest_offsets(self, round_number: int, partitions: list[int]) -> None:
        self.told.append(f"ask read index, round {round_number}: {partitions}")
        self._round, self._asked[round_number] = round_number, partitions

    def delete_records(self, partition: int, before_offset: int) -> None:
        self.told.append(f"delete below {before_offset}" + _on(partition))

    # ---- the runtime tells the host --------------------------------------------------------------------------------

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        text = ", ".join(f"{name}={value}" for name, value in fields.items() if name not in ORIGIN)
        self.told.append(f"{level}: {event}" + (f" ({text})" if text else ""))

    def continue_soon(self, task: Callable[[], None]) -> None:
        self.told.append("asks for a turn")
        self.turns.append(task)

    def end_turn_with(self, task: Callable[[], None]) -> None:
        task()

    def begin_load_turn(self, ended: Callable[[], None]) -> None:
        if self.load_turns is None:
            ended()
        else:
            self.load_turns.append(ended)

    def partition_changed(self, partition: Partition) -> None:
        self.told.append(f"state {partition.state.value}" + _on(partition.index))

    def superseded(self, partition: Partition, winner: Checkpoint, offset: int) -> None:
        self.told.append(f"superseded by {winner.node_id}, epoch {winner.owner_epoch}, offset {offset}")

    # ---- callers ---------------------------------------------------------------------------------------------------

    def _completed(self, operation: Add, outcome: object) -> None:
        assert operation.name not in self.answered, f"{operation.name} is answered twice"
        self.answered.add(operation.name)
        self.told.append(f"answer {operation.name}: {_outcome(outcome)}")
        then = self._on_answer.pop(operation.name, None)
        if then is not None:
            self._run(then)

    def _make_machine(self, index: int) -> Counter:
        self._machines += 1
        return Counter(f"machine {self._machines}", lambda line: self.told.append(line), self.bugs)

    def _random_bytes(self, size: int) -> bytes:
        self._attempts += 1
        return self._attempts.to_bytes(size, "big")


def _checkpoint(options: dict[str, str]) -> Checkpoint:
    return Checkpoint(
        owner_epoch=int(options.get("epoch", 0)),
        attempt_id=options.get("attempt", "rival").encode().ljust(16, b"."),
        node_id=options.get("node", "b"),
        generation=int(options.get("generation", 0)),
        cluster_id=options.get("cluster", IDENTITY.cluster_id),
        topic_id=options["topic"].encode().ljust(16, b".") if "topic" in options else IDENTITY.topic_id,
        partition_count=int(options.get("partitions", IDENTITY.partition_count)),
        reason=options.get("reason"),
        accepted_reason=options.get("accepted"),
        cut_offset=int(options.get("cut", -1)),
    )


def _describe(key: bytes | None, value: bytes | None, header: bytes | None) -> str:
    if header is None or is_foreign(header):
        return "foreign"
    if header[0] != 1:
        return "garbage"
    epoch, sequence = decode_header(header)
    if key is not None and is_checkpoint_key(key):
        checkpoint = decode_checkpoint(value or b"")
        accepts = f", accepts: {checkpoint.reason}" if checkpoint.reason else ""
        return f"{epoch}/{sequence} checkpoint of {checkpoint.node_id}, generation {checkpoint.generation}{accepts}"
    return f"{epoch}/{sequence} {'null' if value is None else value.decode()}"


def _outcome(outcome: object) -> str:
    return f"{type(outcome).__name__}, {outcome}" if isinstance(outcome, CoordinatorError) else str(outcome)


def _on(partition: int) -> str:
    return f" @{partition}" if partition else ""
