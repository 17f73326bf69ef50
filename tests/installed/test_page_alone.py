"""A fresh environment of the wheel and the extra `page` alone: one command, and the page of a stock Kafka; how long and how much."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import venv
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from holdfast.broker import EmbeddedKafka
from tests.installed.environment import ROOT, wheel
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_S, Lines
from tools.microscope import play

pytestmark = pytest.mark.real

BUILD = os.environ.get("WHEELS", "pure").split()[-1]


def megabytes(directory: Path) -> float:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 1e6


def install(directory: Path) -> Path:
    """Make the environment as docs/install.md tells, and return the tool in it."""
    venv.create(directory, with_pip=True)
    pip = (directory / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    lock = ROOT / "deploy" / "requirements-page.lock"
    subprocess.run([*pip, "--require-hashes", "--requirement", lock], check=True)
    subprocess.run([*pip, "--no-deps", wheel(BUILD)], check=True)
    subprocess.run([directory / "bin" / "python", "-m", "pip", "check"], check=True, stdout=subprocess.DEVNULL)
    return directory / "bin" / "holdfast"


def first_page(address: str) -> str:
    """Return the first page as soon as the state topic is read."""
    ends_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_s:
        try:
            with urlopen(address, timeout=PATIENCE_S) as answer:
                return str(answer.read().decode())
        except HTTPError as refused:
            refused.close()
            if refused.code not in (502, 503):  # 502: a broker did not answer in time, and is tried on
                raise
    raise AssertionError("the state topic was not read")


def test_the_extra_page_alone_shows_a_stock_kafka(tmp_path: Path) -> None:
    began_s = time.monotonic()
    tool = install(tmp_path / "environment")
    installed_s = time.monotonic() - began_s
    with EmbeddedKafka(data_dir=tmp_path / "kafka", jvm_options=QUICK_KAFKA) as kafka:
        play(kafka.bootstrap_servers)
        # There is neither Java nor anything else of this machine on its path.
        alone = {"PATH": str(tool.parent)}
        began_s = time.monotonic()
        with subprocess.Popen(
            [tool, "page", "--bootstrap-server", kafka.bootstrap_servers],
            cwd=tmp_path,
            env=alone,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as page:
            try:
                assert page.stdout is not None
                html = first_page(Lines(page.stdout).next().strip())
                shown_s = time.monotonic() - began_s
                status = Path(f"/proc/{page.pid}/status").read_text()
                page.send_signal(signal.SIGINT)
                assert page.wait(PATIENCE_S) == 0
            finally:
                page.kill()
    assert "<bdi>packers</bdi>" in html
    packages = megabytes(tmp_path / "environment")
    memory = int(status.partition("VmRSS:")[2].split()[0]) / 1_000
    print(
        f"The extra page alone: {installed_s:.0f} s of pip, {packages:.0f} MB on disk ({wheel(BUILD).stat().st_size / 1e6:.1f} MB the "
        f"wheel); the page of a stock Kafka {shown_s:.1f} s after the command, in {memory:.0f} MB of memory."
    )
