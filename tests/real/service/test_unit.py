"""The unit of systemd: the commands of the pages make a service that reads its files, writes where it may, and nobody else reads."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from shutil import copy, which
from typing import Any, Final

import pytest

from holdfast.broker.properties import choose_ports
from holdfast.client import ClientError, connect
from holdfast.jars.cache import cache_dir, spark_kafka_jars
from holdfast.kafka.security import Security, read_security
from tests.pure.docs.blocks import Block, blocks_of, steps_of
from tests.pure.docs.pages import ROOT
from tests.real.job.quick_spark import QUICK
from tests.real.nodes import ONE_TRY, PATIENT
from tests.real.service.machine import Machine, copied_machine, why_no_copy
from tests.real.service.unit import Unit, under_test
from tests.waiting import PATIENCE_S, SPARK_PATIENCE_S, poll_pause_s, wait_until
from tests.world.identity.certificates import Authority

WHY_NOT: Final = why_no_copy() or ("" if which("systemd-analyze") else "there is no systemd here")

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]

INSTALL, RUN, SECURE, WATCH, ALARMS, SPARK = (
    ROOT / "docs" / f"{name}.md" for name in ("install", "run", "secure", "watch", "alarms", "spark")
)
PASSWORD: Final = "open sesame"
#: Directories in which the pages have the node read and write.
PLACES: Final = "/etc/holdfast", "/var/log/holdfast", "/var/lib/holdfast", "/var/cache/holdfast"


def block(page: Path, text: str) -> Block:
    """Return the one block of a page with a text in it."""
    (found,) = [each for each in blocks_of(page) if text in each.code]
    return found


@dataclass
class Service:
    """A service that was installed as the pages say, and what it says."""

    machine: Machine
    unit: Unit
    directory: Path
    address: str
    settings: Mapping[str, object]
    process: subprocess.Popen[bytes] | None = None

    @property
    def security(self) -> Security:
        return read_security(self.directory / "outside.properties")

    @property
    def log(self) -> Path:
        return self.directory / "node.log"

    def install(self, *names: str) -> None:
        """Put files into the place of settings, by the rule of the page."""
        self.machine.run(f"install -m 640 -g holdfast {' '.join(names)} /etc/holdfast/", directory=self.directory)

    def events(self, event: str) -> int:
        return self.log.read_text().count(f'"event": "{event}"')

    async def ask(self, command: str) -> Any:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        async with connect(self.address, ONE_TRY, self.security) as client:
            return await client.admin(command)

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait for what the service says, while it runs."""
        began_s = time.monotonic()
        while not await condition():
            assert time.monotonic() < began_s + timeout_s, f"{what} did not come about:\n{self.log.read_text()}"
            await asyncio.sleep(poll_pause_s(began_s))

    async def is_ready(self) -> bool:
        """Tell whether it serves."""
        try:
            return bool((await self.ask("status"))["is_ready"])
        except ClientError:
            return False


@pytest.fixture
def service(kafka: str, topic: str, tmp_path: Path) -> Iterator[Service]:
    """Give the service of the page about running, installed and not started."""
    authority = Authority(tmp_path)
    for own, named in zip(authority.sign("signed", "/CN=node"), ("node.pem", "node.key"), strict=True):
        own.rename(tmp_path / named)
    copy(authority.certificate, tmp_path / "ca.pem")
    (properties,) = [each.code for each in blocks_of(SECURE) if each.code.startswith("security.protocol=")]
    client = properties.replace("…", PASSWORD)
    (tmp_path / "client.properties").write_text(client)
    (tmp_path / "outside.properties").write_text(client.replace("/etc/holdfast", str(tmp_path)))
    http = block(WATCH, "tls.certificate.file").code
    (tmp_path / "node.toml").write_text(block(RUN, "audit_file").code + "\n" + http[http.index("[http]") :])
    for name in ("http.pem", "http.key"):
        copy(tmp_path / name.replace("http", "node"), tmp_path / name)
    (tmp_path / "http.token").write_text("token\n")
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "copy").mkdir()
    address = f"127.0.0.1:{choose_ports(1)[0].broker}"
    settings = {
        "listen": address,
        "advertised_listener": "",
        "http.listen": "127.0.0.1:0",
        "kafka.bootstrap.servers": kafka,
        "state_topic": topic,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 2,
        "acls_file": "/etc/holdfast/acls.jsonl",
        "files.reload.interval.ms": 60_000,
        **PATIENT,
    }
    with copied_machine(tmp_path / "copy") as machine:
        machine.run(f"rm -rf {' '.join(PLACES)} /opt/holdfast; ln -s {quote(sys.prefix)} /opt/holdfast")
        # The user of the Python under test, and of the clone, lets others in.
        above = {str(each) for place in under_test() for each in (place, *place.parents)}
        machine.run(f"chmod a+x {' '.join(map(quote, sorted(above)))}")
        typed = block(RUN, "systemctl enable --now holdfast")
        for step in steps_of(typed.code):
            if not step.command.startswith("journalctl"):
                # Nothing is started in a machine that is not booted: the test does it, by the unit.
                machine.run(step.command.replace(" --now", ""), directory=tmp_path, typed=f"{PASSWORD}\n" * 2)
        yield Service(machine, unit_of(machine), tmp_path, address, settings)


def unit_of(machine: Machine) -> Unit:
    """Return the unit as it is installed, with its drop-ins."""
    unit = "/etc/systemd/system/holdfast.service"
    return Unit(machine.read(unit), *machine.run(f"cat {unit}.d/*.conf 2>/dev/null || true").split("\0"))


def variables(settings: Mapping[str, object]) -> Mapping[str, str]:
    return {f"HOLDFAST_{name.replace('.', '_').upper()}": str(value) for name, value in settings.items()}


def named_files() -> list[str]:
    """Return the files that the pages and the unit name in the place of settings."""
    unit = ROOT / "deploy" / "systemd" / "holdfast.service"
    texts = "".join(path.read_text() for path in (INSTALL, RUN, SECURE, WATCH, ALARMS, unit))
    return sorted({found.rstrip(".") for found in re.findall(r"/etc/holdfast/[\w.]+", texts)} - {"/etc/holdfast/"})


async def test_the_commands_of_the_page_make_a_service_that_alone_reads_files(service: Service) -> None:
    machine = service.machine
    assert "holdfast:x:" in machine.read("/etc/passwd")
    service.install("http.pem", "http.key", "http.token")
    machine.run("cp /etc/holdfast/ca.pem ~/authority.pem; install -m 640 -g holdfast ~/authority.pem /etc/holdfast/")
    rule = "--allow-principal User:orders --operation READ --group orders"
    machine.run(f"HOLDFAST_ACLS_FILE=/etc/holdfast/acls.jsonl /opt/holdfast/bin/holdfast acls add {rule}")
    for path in named_files():
        machine.run(f"test -s {path}", user="holdfast")
        machine.run(f"! cat {path}", user="nobody")
        machine.run(f"! test -w {path}", user="holdfast")

    with machine.service(service.unit, service.log, variables(service.settings)) as service.process:
        await service.until(service.is_ready, "the service is ready")
        status = machine.read(f"/proc/{service.process.pid}/status")
        assert re.search(r"^CapBnd:\s+0+$", status, re.MULTILINE)
        assert re.search(r"^Seccomp:\s+2$", status, re.MULTILINE)
        assert machine.run(f"stat -c %U /proc/{service.process.pid}").strip() == "holdfast"
        assert (await service.ask("status"))["http_port"]

        # Changes by root are read again: a user more, a new certificate, other settings.
        machine.run("/opt/holdfast/bin/holdfast users add orders --file /etc/holdfast/users", typed=f"{PASSWORD}\n" * 2)
        service.install("node.pem", "node.key", "node.toml")
        before = service.events("users_loaded")
        service.process.send_signal(signal.SIGHUP)
        await wait_until(lambda: service.events("settings_reloaded") and service.events("users_loaded") > before)
        # A group coordinator that is just being loaded refuses a member at first, which concerns no file.
        refused = re.search(r'"event": "(?!group_join_refused)\w+_(?:refused|failed)"', service.log.read_text())
        assert refused is None, service.log.read_text()

        audit = "/var/log/holdfast/audit.log"
        assert "access_rules_loaded" in machine.run(f"cat {audit}", user="holdfast")
        machine.run(f"! cat {audit}", user="nobody")
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(PATIENCE_S) == 0, service.log.read_text()


async def test_the_doctor_says_as_the_service_what_it_cannot_read(service: Service) -> None:
    (command,) = re.findall(r"`(runuser .* doctor .*?)`", RUN.read_text())
    machine = service.machine
    service.install("http.pem", "http.key", "http.token")
    machine.run("touch /etc/holdfast/acls.jsonl; chmod 600 /etc/holdfast/node.key")
    names = variables(service.settings)
    exported = " ".join(f"export {name}='{value}';" for name, value in names.items())
    said = machine.run(f"{exported} {command} || test $? = 1")
    assert re.search(r"node\.pem or its key cannot be read \(Permission denied\)", " ".join(said.split())), said


async def test_a_node_with_the_job_runs_under_what_the_drop_in_allows(service: Service, topic: str) -> None:
    machine = service.machine
    for step in steps_of(block(SPARK, "holdfast.service.d/spark.conf").code):
        machine.run(step.command, directory=service.directory)
    service.unit = unit_of(machine)
    service.install("http.pem", "http.key", "http.token")
    machine.run("touch /etc/holdfast/acls.jsonl")
    spark_kafka_jars()
    cached = service.unit.environment["HOLDFAST_CACHE"]
    machine.run(f"mkdir -p {cached}; cp -a {cache_dir()}/spark-kafka-* {cached}/; chown -R holdfast: {cached}")
    job = {
        "snapshots.topic": f"{topic}-snapshots",
        "compaction.group": f"{topic}-job",
        "compaction.master": "local[1]",
        "compaction.state.partitions": 1,
        "compaction.worker.start.attempts.max": 100,
        "compaction.trigger.interval.ms": 500,
    }
    quick = "\n".join(f'"{name.removeprefix("spark.")}" = "{value}"' for name, value in QUICK.items())
    settings = service.directory / "node.toml"
    settings.write_text(f"{settings.read_text()}\n[spark]\n{quick}\n")
    service.install("node.toml")

    async def has_a_batch() -> bool:
        return bool((await service.ask("metrics")).get("holdfast_compaction_batch_time_seconds_count"))

    with machine.service(service.unit, service.log, variables({**service.settings, **job})) as service.process:
        await service.until(service.is_ready, "the service is ready")
        await service.until(has_a_batch, "the job has folded a batch", SPARK_PATIENCE_S)
        assert machine.run("ls /var/lib/holdfast/checkpoint", user="holdfast")
        machine.run("! ls /var/lib/holdfast", user="nobody")
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(SPARK_PATIENCE_S) == 0, service.log.read_text()
