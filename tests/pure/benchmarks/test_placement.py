"""Which share partitions are under load, and when the brokers count as warm."""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.client import Address, BenchmarkError
from benchmarks.machine import compiler_seconds, thread_times
from benchmarks.share_state import KEYS_PER_CONNECTION, ConnectionKeys, make_callers, take_place

ONE, OTHER = Address("127.0.0.1", 1), Address("127.0.0.1", 2)
ENOUGH, TOO_FEW = list(range(KEYS_PER_CONNECTION)), list(range(KEYS_PER_CONNECTION - 1))


def test_connections_go_round_the_places_in_the_order_of_their_numbers() -> None:
    # The higher port leads the lower number: who is first must not depend on ports, which are random.
    by_place = {(2, ONE): ENOUGH, (1, OTHER): ENOUGH}
    taken: Counter[tuple[int, Address]] = Counter()
    assert [take_place(by_place, taken) for _ in range(4)] == [(1, OTHER), (2, ONE), (1, OTHER), (2, ONE)]


def test_a_place_with_too_few_share_partitions_is_left_for_the_next_group() -> None:
    taken: Counter[tuple[int, Address]] = Counter()
    assert take_place({(1, ONE): TOO_FEW, (2, ONE): ENOUGH}, taken) is None
    assert not taken


def test_each_caller_has_all_coordinators_and_begins_with_the_next_one() -> None:
    addresses = [Address("127.0.0.1", 1 + number % 3) for number in range(12)]
    chosen = [ConnectionKeys(address, f"group-{n}", bytes(16), [0]) for n, address in enumerate(addresses)]
    callers = make_callers(chosen, 3)
    order = [[keys.address.port for keys in (caller, *caller.elsewhere)] for caller in callers]
    assert order == [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]]
    assert make_callers(chosen[:4], 1) == chosen[:4]


def test_a_caller_whose_coordinators_are_one_after_all_ends_the_benchmark() -> None:
    chosen = [ConnectionKeys(address, "group", bytes(16), [0]) for address in (ONE, OTHER, ONE)]
    with pytest.raises(BenchmarkError, match="are the same"):
        make_callers(chosen, 3)


def write_thread(proc: Path, process_id: int, thread_id: int, name: str, user: int, system: int) -> None:
    directory = proc / str(process_id) / "task" / str(thread_id)
    directory.mkdir(parents=True)
    (directory / "stat").write_text(f"{thread_id} ({name}) S 1 2 3 4 5 6 7 8 9 10 {user} {system} 0 0 20 0 1 0\n")


def test_the_time_of_javas_compilers_is_taken_by_thread(tmp_path: Path) -> None:
    write_thread(tmp_path, 7, 71, "C2 CompilerThre", 150, 50)
    write_thread(tmp_path, 7, 72, "data-plane-kafk", 900, 900)
    write_thread(tmp_path, 8, 81, "C1 CompilerThre", 25, 0)
    (tmp_path / "8" / "task" / "82").mkdir()  # it has just ended
    assert compiler_seconds([7, 8], tmp_path) == {71: 2.0, 81: 0.25}


def test_a_thread_that_ends_while_it_is_looked_at_has_no_time(tmp_path: Path) -> None:
    write_thread(tmp_path, 7, 71, "GC Thread#0", 150, 50)
    (tmp_path / "7" / "task" / "72").mkdir()  # it has just ended
    assert list(thread_times([7], tmp_path)) == [(71, "GC Thread#0", 2.0)]


def test_no_compiler_at_all_is_an_error_and_not_silence(tmp_path: Path) -> None:
    write_thread(tmp_path, 7, 72, "data-plane-kafk", 900, 900)
    with pytest.raises(BenchmarkError, match="C1 CompilerThre"):
        compiler_seconds([7], tmp_path)
