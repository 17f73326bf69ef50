"""What the doctor says of certificates, which `openssl` makes for the test."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from shutil import which
from typing import Final

import pytest

from holdfast.console.doctor.certificates import CertificateFiles, find_certificates, judge_certificate
from holdfast.console.doctor.findings import Finding, Level
from holdfast.node_settings import load_settings

pytestmark = pytest.mark.skipif(which("openssl") is None, reason="there is no openssl here to make certificates")

SETTING: Final = "kafka.ssl.certificate.location"


def make(directory: Path, name: str, *more: str) -> tuple[str, str]:
    """Make a key and a certificate that it signs itself; returns the files of the certificate and the key."""
    certificate, key = str(directory / f"{name}.pem"), str(directory / f"{name}.key")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", *(more or ("-nodes",)))
    command = ["openssl", "req", "-x509", *curve, "-keyout", key, "-out", certificate, "-days", "100"]
    subprocess.run([*command, "-subj", f"/CN={name}"], check=True, capture_output=True)
    return certificate, key


def judged(certificate: str, key: str, password: str = "", authority: str = "", later_days: int = 0) -> list[Finding]:
    files = CertificateFiles(SETTING, certificate, key, password, authority)
    return list(judge_certificate(files, time.time() + later_days * 86_400))


def test_a_certificate_that_fits_says_how_long_it_is_valid(tmp_path: Path) -> None:
    certificate, key = make(tmp_path, "node")
    [found] = judged(certificate, key)
    assert (found.level, found.text) == (
        Level.RIGHT,
        f"{certificate} fits its key, and is valid for 100 days more",
    )
    [found] = judged(certificate, key, later_days=90)
    assert (found.level, "valid for 10 days more" in found.text) == (Level.WARNING, True)


def test_a_key_of_another_certificate_a_wrong_password_and_a_missing_file_are_named(tmp_path: Path) -> None:
    certificate, _ = make(tmp_path, "node")
    _, other = make(tmp_path, "other")
    [found] = judged(certificate, other)
    assert (found.level, found.text) == (Level.WRONG, f"the key of {certificate} is another one's ({SETTING})")
    locked, locked_key = make(tmp_path, "locked", "-passout", "pass:open sesame")
    assert judged(locked, locked_key, "open sesame")[0].level is Level.RIGHT
    for password in ("wrong", ""):
        assert judged(locked, locked_key, password)[0].level is Level.WRONG
    [found] = judged(str(tmp_path / "none.pem"), "")
    assert "No such file" in found.text


def test_a_certificate_that_has_ended_is_refused(tmp_path: Path) -> None:
    certificate, key = make(tmp_path, "node")
    (tmp_path / "index").touch()
    (tmp_path / "openssl.cnf").write_text(
        f"[ca]\ndefault_ca=a\n[a]\ndatabase={tmp_path}/index\nnew_certs_dir={tmp_path}\nrand_serial=yes\n"
        "default_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n"
    )
    times = ["-startdate", "20200101000000Z", "-enddate", "20200201000000Z"]
    request = ["-config", str(tmp_path / "openssl.cnf"), "-ss_cert", certificate, "-cert", certificate, "-keyfile", key]
    ended = str(tmp_path / "ended.pem")
    subprocess.run(["openssl", "ca", "-batch", *request, *times, "-out", ended], check=True, capture_output=True)
    [found] = judged(ended, key)
    assert (found.level, "expired" in found.text) == (Level.WRONG, True)


def test_authorities_are_read(tmp_path: Path) -> None:
    certificate, _ = make(tmp_path, "authority")
    assert judged("", "", authority=certificate)[0].level is Level.RIGHT
    (tmp_path / "no.pem").write_text("no certificate")
    [found] = judged("", "", authority=str(tmp_path / "no.pem"))
    assert (found.level, "cannot be read as authorities" in found.text) == (Level.WRONG, True)


def test_the_settings_name_them() -> None:
    flags = {"kafka.bootstrap.servers": "a:1"}
    assert find_certificates(load_settings(flags=flags).settings) == []
    flags |= {"kafka.ssl.ca.location": "ca.pem"}
    assert [each.setting for each in find_certificates(load_settings(flags=flags).settings)] == [
        "kafka.ssl.ca.location"
    ]
    flags |= {"kafka.ssl.certificate.location": "node.pem", "kafka.ssl.key.password": "secret"}
    [found] = find_certificates(load_settings(flags=flags).settings)
    assert found == CertificateFiles(SETTING, "node.pem", "", "secret", "ca.pem")
    flags |= {"http.tls.certificate.file": "http.pem", "http.tls.key.file": "http.key"}
    _, found = find_certificates(load_settings(flags=flags).settings)
    assert found == CertificateFiles("http.tls.certificate.file", "http.pem", "http.key", "", "")
