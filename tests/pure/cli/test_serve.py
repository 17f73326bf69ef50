"""`holdfast serve` as a process: what it says of its settings, and the codes by which others know how it ended."""

from __future__ import annotations

import json
import subprocess
import sys

from holdfast.console.outcomes import Exit
from tests.waiting import PATIENCE_S


def test_exit_codes_are_fixed_because_units_and_scripts_rest_on_them() -> None:
    assert {code.name: int(code) for code in Exit} == {
        "DONE": 0,
        "FAILED": 1,
        "WRONG_USAGE": 2,
        "REFUSED_TO_START": 3,
        "SUPERSEDED": 4,
        "UNREACHABLE": 5,
        "NOT_FOUND": 6,
        "DIFFERENT": 7,
    }


def test_a_setting_without_effect_is_told_in_the_log_and_a_kafka_that_is_not_there_ends_it() -> None:
    settings = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "listen": "127.0.0.1:0",
        "admin_timeout_ms": 100,
        "share.coordinator.threads": 3,
    }
    flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    ended = subprocess.run(
        [sys.executable, "-m", "holdfast", "serve", *flags],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == Exit.REFUSED_TO_START, ended.stderr
    lines = [json.loads(line) for line in ended.stderr.splitlines() if line.startswith("{")]
    (look,) = [line for line in lines if line["event"] == "a setting needs a look"]
    assert look["what"].startswith("share.coordinator.threads (as a flag) has no effect here: ")
