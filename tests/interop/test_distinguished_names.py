"""The name in a client's certificate is the one that Java gives it, and so Kafka, or the certificate is refused."""

from __future__ import annotations

import ssl
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from holdfast.broker import find_java
from holdfast.daemon.login.certificates import CertificateWrong, distinguished_name
from tests.waiting import PATIENCE_S
from tests.world.identity.certificates import Authority, with_subject
from tests.world.identity.subjects import subjects

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).with_name("DistinguishedNames.java")


def names_by_java(names: list[bytes]) -> list[str | None]:
    lines = "".join(f"{b64encode(each).decode()}\n" for each in names)
    done = subprocess.run(
        [find_java(), str(PROGRAM)], input=lines, text=True, capture_output=True, check=True, timeout=PATIENCE_S
    )
    return [None if line == "refused" else b64decode(line).decode() for line in done.stdout.splitlines()]


def test_a_name_is_written_as_java_writes_it_or_refused(authority: Authority) -> None:
    template = ssl.PEM_cert_to_DER_cert(authority.certificate.read_text())
    names: list[bytes] = []

    @settings(max_examples=1000, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(subjects)
    def collect(name: bytes) -> None:
        names.append(name)

    collect()
    compared = 0
    # One Java for all of them; nothing is to be shrunk, a name is small.
    for name, expected in zip(names, names_by_java(names), strict=True):
        try:
            ours = distinguished_name(with_subject(template, name))
        except CertificateWrong:
            continue
        assert ours == expected, f"the subject {name.hex()}"
        compared += 1
    assert compared


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))
