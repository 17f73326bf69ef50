"""What callgrind wrote, as a table by room that adds up."""

from __future__ import annotations

from importlib import import_module

from benchmarks.micro.instructions import ONCE_A_REQUEST, count

FILE = """\
version: 1
events: Ir

ob=(1) /tree/holdfast_node__mypyc.so
fn=(1) CPyDef_holdfast___daemon___server___api_table___ApiHandler_____call__
0 10
cfn=(2) CPyDef_holdfast___share___calls___answer
calls=3 0
0 900

fn=(2)
0 30
+5 6
cob=(2) /tree/holdfast/records/native/twins.so
cfn=(3) combine
calls=3 0
* 500
cfn=(4) CPyDef_holdfast___runtime___coordinator___CoordinatorRuntime___write_many
calls=3 0
* 300

ob=(2)
fn=(3)
0 500

ob=(1)
fn=(4)
0 300

ob=(3) /libraries/uvloop/loop.so
fn=(5) uv_run
0 7

ob=(4) /usr/bin/python3.11
fn=(6) _PyEval_EvalFrameDefault'2
0 40
"""


def test_instructions_are_those_of_the_room_itself_and_add_up() -> None:
    rooms, requests = count(FILE.splitlines())
    assert requests == 3
    assert rooms == {
        "holdfast/daemon/server/": 10,
        "holdfast/share/": 36,
        "holdfast/records/native/ (C)": 500,
        "holdfast/runtime/": 300,
        "the event loop": 7,
        "the interpreter, for the broker above all": 40,
    }


WITH_CACHES = """\
events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw
fn=(1) CPyDef_holdfast___runtime___coordinator___CoordinatorRuntime___write_many
0 10 5 4 3 2 1
+2 7
cfn=(2) CPyDef_holdfast___share___calls___answer
calls=2 0
* 90 80 70 60 50 40 30 20 10
fn=(2)
* 4 3 2 1
"""


def test_what_a_cache_lacks_is_counted_where_callgrind_leaves_out_zeros_at_the_end() -> None:
    room, other = "holdfast/runtime/", "holdfast/share/"
    assert count(WITH_CACHES.splitlines()) == ({room: 17, other: 4}, 2)
    assert count(WITH_CACHES.splitlines(), "code") == ({room: 3, other: 1}, 2)
    assert count(WITH_CACHES.splitlines(), "data") == ({room: 3, other: 0}, 2)


def test_function_that_counts_requests_is_there() -> None:
    *module, function = ONCE_A_REQUEST.removeprefix("CPyDef_").split("___")
    assert callable(getattr(import_module(".".join(module)), function))
