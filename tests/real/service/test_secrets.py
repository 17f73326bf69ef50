"""A bundle of a node with secrets in every kind of setting, and the node's own lines: none of them holds one."""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.client import ClientError, connect
from tests.real.nodes import PATIENT_CLIENT, node_processes
from tests.waiting import PATIENCE_MS
from tests.world.identity.secured import SecuredFiles

pytestmark = pytest.mark.real

PLANTED: Final = "planted-"
#: Settings of a node whose values are secrets, or hold one.
SECRETS: Final = {
    "kafka.ssl.key.password": f"{PLANTED}key",
    "kafka.sasl.oauthbearer.client.secret": f"{PLANTED}client",
    "spark.authenticate.secret": f"{PLANTED}spark",
    "spark.ssl.keyPassword": f"{PLANTED}spark-key",
    "spark.hadoop.fs.s3a.secret.key": f"{PLANTED}s3",
    "spark.hadoop.fs.s3a.endpoint": f"https://kelp:{PLANTED}url@store.example/",
    "listener.ssl.key.password": f"{PLANTED}listener",
}


def bundle(path: Path, *flags: str) -> tuple[dict[str, bytes], list[str]]:
    """Return the files of a new bundle, and those that could not be had."""
    result = CliRunner().invoke(main, [*flags[:2], "debug", "bundle", *flags[2:], "--output", str(path), "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert PLANTED not in result.output
    with tarfile.open(path) as archive:
        files = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        found = {name: file.read() for name, file in files.items() if file is not None}
    return found, json.loads(result.stdout)["missing"]


async def test_no_bundle_of_a_secured_node_and_no_line_of_it_holds_a_secret(
    kafka: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SecuredFiles(tmp_path)
    files.let_in(admin=f"{PLANTED}admin", orders=f"{PLANTED}orders")
    files.client_properties.write_text(files.properties_of("admin", f"{PLANTED}admin"))
    token = tmp_path / "token"
    token.write_text(f"{PLANTED}token\n")
    monkeypatch.setenv("HOLDFAST_KAFKA_SASL_PASSWORD", f"{PLANTED}kafka")
    settings = {**files.settings, **SECRETS, "http.token.file": token}
    with node_processes(kafka, topic, tmp_path) as make_node:
        node = make_node(**settings)
        await node.start()
        with pytest.raises(ClientError):  # a line of the audit log, and one of an error
            async with connect(node.address, PATIENT_CLIENT, node.security) as client:
                await client.admin("topic-ends", topics={"nonsense": [0]})
        common = ("--command-config", str(files.client_properties))
        options = ("--address", node.address, "--timeout-ms", str(PATIENCE_MS))
        here = tuple(part for name, value in settings.items() for part in ("--set", f"{name}={value}"))
        bootstrap = ("--set", f"kafka.bootstrap.servers={kafka}")
        by_owner, missing = await asyncio.to_thread(bundle, tmp_path / "a.tar.gz", *common, *bootstrap, *here, *options)
        assert missing == []
        monkeypatch.delenv("HOLDFAST_KAFKA_SASL_PASSWORD")
        by_other, missing = await asyncio.to_thread(bundle, tmp_path / "b.tar.gz", *common, *bootstrap, *options)
        assert missing == []
        unreachable = ("--address", "127.0.0.1:1", "--timeout-ms", "1000")
        by_nobody, _ = await asyncio.to_thread(bundle, tmp_path / "c.tar.gz", *common, *bootstrap, *here, *unreachable)
        for name, content in [*by_owner.items(), *by_other.items(), *by_nobody.items()]:
            assert PLANTED.encode() not in content, (
                name,
                content[max(0, content.find(PLANTED.encode()) - 200) :][:400],
            )
        shown = json.loads(by_other["b/node-settings.json"])
        assert {shown[name] for name in SECRETS if "endpoint" not in name} == {"(hidden)"}
        assert not [line for line in node.lines() if PLANTED in line]
