"""The lines of a node: their form, what they hide, and how many a client can cause."""

import io
import json
import logging
import os
import re
import warnings
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import structlog

from holdfast.daemon.settings.file_env_flags import describe
from holdfast.daemon.settings.logging import (
    AUDIT_LOGGER,
    AUDIT_UNWRITTEN,
    LAST_LINES,
    configure_logging,
    open_audit_file,
    warn_of_client,
)
from holdfast.daemon.settings.models import LoggingSettings
from holdfast.daemon.settings.secrets import secrets_of
from holdfast.hidden_texts import REDACTED, HiddenTexts
from holdfast.metrics.line_limit import LineLimiter
from holdfast.node_settings import load_settings

SECRET = "open sesame"


def lines_of(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def configured(**settings: object) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(LoggingSettings.model_validate(settings), stream)
    return stream


def test_a_line_is_one_json_object_with_its_fields() -> None:
    stream = configured()
    structlog.get_logger("holdfast.daemon.test").info("partition is loaded", partition=3, topic_id=b"\x01\xff")
    (line,) = lines_of(stream)
    assert str(line.pop("timestamp")).endswith("Z")
    assert line == {
        "event": "partition is loaded",
        "level": "info",
        "logger": "holdfast.daemon.test",
        "partition": 3,
        "topic_id": "01ff",
    }


def test_each_line_has_the_fields_of_its_process_unless_it_has_one_of_that_name() -> None:
    stream = io.StringIO()
    configure_logging(LoggingSettings(), stream, fields={"node_id": 2})
    log = structlog.get_logger("holdfast.daemon.test")
    log.info("node_ready")
    log.info("node_starting", node_id=3)
    logging.getLogger("aiokafka.conn").warning("closing")
    assert [(line["event"], line["node_id"]) for line in lines_of(stream)] == [
        ("node_ready", 2),
        ("node_starting", 3),
        ("closing", 2),
    ]


def test_a_line_of_a_library_has_the_same_form() -> None:
    stream = configured()
    logging.getLogger("aiokafka.conn").warning("closing %s", "b:1")
    logging.getLogger("aiokafka.conn").info("not important enough")
    (line,) = lines_of(stream)
    assert (line["event"], line["level"], line["logger"]) == ("closing b:1", "warning", "aiokafka.conn")


def test_the_level_is_a_setting() -> None:
    stream = configured(log_level="error")
    log = structlog.get_logger("holdfast.runtime")
    log.warning("too small")
    log.error("large enough")
    assert [line["event"] for line in lines_of(stream)] == ["large enough"]
    stream = configured(log_level="debug")
    log.debug("small")
    assert [line["event"] for line in lines_of(stream)] == ["small"]


def test_a_warning_of_python_is_a_line() -> None:
    stream = configured()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", UserWarning, stacklevel=1)
    (line,) = lines_of(stream)
    assert "UserWarning: old" in str(line["event"])


def test_configuring_again_replaces_the_first() -> None:
    first = configured()
    second = configured()
    structlog.get_logger("holdfast").info("once")
    assert (len(lines_of(first)), len(lines_of(second))) == (0, 1)


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_nothing_secret_is_written(log_format: str) -> None:
    stream = configured(log_format=log_format)
    log = structlog.get_logger("holdfast")
    log.info(
        "settings",
        sasl_password=SECRET,
        token=SECRET,
        settings={"kafka.sasl.password": SECRET, "kafka": {"ssl.key.pem": SECRET, "client.id": "me"}},
    )
    password = SECRET
    try:
        int(password == SECRET and "x")
    except ValueError:
        log.exception("it broke")
    text = stream.getvalue()
    assert SECRET not in text
    assert REDACTED in text
    assert "me" in text
    assert "Traceback" in text


def test_a_line_for_machines_begins_with_what_it_is_about() -> None:
    stream = configured()
    structlog.get_logger("holdfast").warning("partition is lost", alpha=1, partition=3)
    assert list(lines_of(stream)[0]) == ["event", "level", "timestamp", "alpha", "partition", "logger"]


TIME = r"\d\d:\d\d:\d\d"


def test_text_for_people_is_one_line_an_event_which_comes_before_its_fields() -> None:
    stream = configured(log_format="console")
    structlog.get_logger("holdfast").warning("partition is lost", partition=3, why="it was taken", text="")
    (line,) = stream.getvalue().splitlines()
    assert re.fullmatch(TIME + " warning partition is lost  partition=3 why='it was taken' text=''", line)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "log_format", "may_be_coloured", "form"),
    [
        (Terminal(), "auto", True, TIME + " \x1b\\[33mwarning\x1b\\[0m \x1b\\[33mit is late\x1b\\[0m  by_ms=5\n"),
        (Terminal(), "auto", False, TIME + " warning it is late  by_ms=5\n"),
        (Terminal(), "json", True, r'\{"event": "it is late", .*\}\n'),
        (io.StringIO(), "console", True, TIME + " warning it is late  by_ms=5\n"),
        (io.StringIO(), "auto", True, r'\{"event": "it is late", .*\}\n'),
    ],
    ids=["terminal", "NO_COLOR", "json on a terminal", "console in a pipe", "pipe"],
)
def test_text_is_for_terminals_and_json_for_everything_else(
    stream: io.StringIO, log_format: str, may_be_coloured: bool, form: str
) -> None:
    settings = LoggingSettings.model_validate({"log_format": log_format})
    configure_logging(settings, stream, may_be_coloured=may_be_coloured)
    structlog.get_logger("holdfast").warning("it is late", by_ms=5)
    assert re.fullmatch(form, stream.getvalue())


def test_a_client_causes_so_many_lines_of_a_kind_a_minute() -> None:
    stream = configured()
    now_ms = 50_000
    report = partial(warn_of_client, LineLimiter(lambda: now_ms))
    for number in range(13):
        report("a malformed request", f"10.0.0.{number}:99", f"cut at byte {number}")
    report("an unknown API", "10.0.0.9:99", "API 7")
    now_ms += 59_900
    report("a malformed request", "10.0.0.6:99", "")
    now_ms += 100
    report("a malformed request", "10.0.0.7:99", "x" * 10_000)
    report("a malformed request", "10.0.0.8:99", "y")
    found = [(line["event"], line["client"], line.get("left_out")) for line in lines_of(stream)]
    assert found == [
        *(("a malformed request", f"10.0.0.{number}:99", None) for number in range(10)),
        ("an unknown API", "10.0.0.9:99", None),
        ("a malformed request", "10.0.0.7:99", 4),
        ("a malformed request", "10.0.0.8:99", None),
    ]
    assert all(len(str(line["text"])) <= 300 for line in lines_of(stream))


def test_what_a_client_sends_is_cut_after_its_secrets_are_hidden() -> None:
    stream = io.StringIO()
    configure_logging(LoggingSettings(), stream, secrets=[SECRET])
    warn_of_client(LineLimiter(), "malformed_request_received", "10.0.0.1:99", "x" * 295 + SECRET)
    assert lines_of(stream)[0]["text"] == "x" * 295 + REDACTED[:5]


def forget_audit_files() -> None:
    audit = logging.getLogger(AUDIT_LOGGER)
    for handler in audit.handlers[:]:
        audit.removeHandler(handler)
        with suppress(OSError):  # what a full disk has not taken
            handler.close()
    audit.propagate = True


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_an_audit_file_is_its_owners_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    path, moved = tmp_path / "audit.jsonl", tmp_path / "audit.1"
    configured()
    former = os.umask(umask)
    try:
        open_audit_file(str(path))
        path.rename(moved)
        structlog.get_logger(AUDIT_LOGGER).info("access_rules_loaded", rules=1)
        assert [each.stat().st_mode & 0o777 for each in (path, moved)] == [0o600, 0o600]
    finally:
        os.umask(former)
        forget_audit_files()
    # One that is there is as its owner wants it.
    path.chmod(0o640)
    open_audit_file(str(path))
    forget_audit_files()
    assert path.stat().st_mode & 0o777 == 0o640
    assert len(path.read_text().splitlines()) == 1


def test_the_audit_log_is_written_whatever_the_level_and_may_have_a_file_of_its_own(tmp_path: Path) -> None:
    audit = structlog.get_logger(AUDIT_LOGGER)
    stream = configured(log_level="error")
    audit.info("access_rules_loaded", rules=1)
    structlog.get_logger("holdfast").info("something else")
    assert [(line["event"], line["logger"]) for line in lines_of(stream)] == [("access_rules_loaded", "audit")]
    path = tmp_path / "audit.jsonl"
    try:
        open_audit_file(str(path))
        stream = configured()
        audit.warning("access_denied", principal="User:a", password=SECRET)
        path.rename(tmp_path / "audit.1")
        audit.warning("access_denied", principal="User:b")
        assert stream.getvalue() == ""
        first, second = (json.loads((tmp_path / name).read_text()) for name in ("audit.1", "audit.jsonl"))
        assert list(first) == ["event", "level", "timestamp", "principal", "password", "logger"]
        assert (first["principal"], first["password"], second["principal"]) == ("User:a", REDACTED, "User:b")
    finally:
        forget_audit_files()
    with pytest.raises(OSError, match="No such file"):
        open_audit_file(str(tmp_path / "missing" / "audit"))


@pytest.mark.parametrize("is_full", [True, False], ids=["no space", "no directory"])
def test_what_an_audit_file_does_not_take_is_told_once_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_full: bool
) -> None:
    path = Path("/dev/full") if is_full else tmp_path / "logs" / "audit.jsonl"
    path.parent.mkdir(exist_ok=True)
    stream, before = configured(), AUDIT_UNWRITTEN.value
    try:
        open_audit_file(str(path))
        if not is_full:
            path.parent.rename(tmp_path / "moved")
        for number in range(3):
            structlog.get_logger(AUDIT_LOGGER).info("access_rules_loaded", rules=number)
    finally:
        forget_audit_files()
    (line,) = lines_of(stream)
    assert (line["event"], line["level"], line["file"]) == ("audit_write_failed", "error", str(path))
    assert ("No space left" if is_full else "No such file") in str(line["why"])
    assert AUDIT_UNWRITTEN.value - before == 3
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("bug", [ZeroDivisionError, RecursionError])
@pytest.mark.parametrize("name", ["format", "reopenIfNeeded"])
def test_a_bug_beside_the_audit_file_is_told_as_one_and_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, bug: type[Exception]
) -> None:
    def fail(*_: object) -> None:
        raise bug("ours")

    stream, before, path = configured(), AUDIT_UNWRITTEN.value, tmp_path / "audit.jsonl"
    try:
        open_audit_file(str(path))
        (handler,) = logging.getLogger(AUDIT_LOGGER).handlers
        with monkeypatch.context() as patch:
            patch.setattr(handler, name, fail)
            structlog.get_logger(AUDIT_LOGGER).info("access_rules_loaded", rules=1)
        structlog.get_logger(AUDIT_LOGGER).info("access_rules_loaded", rules=2)
    finally:
        forget_audit_files()
    (line,) = lines_of(stream)
    assert (line["event"], line["level"], line["error"]) == ("audit_line_failed", "error", f"{bug.__name__}('ours')")
    assert ", in fail\n" in str(line["exception"])
    assert AUDIT_UNWRITTEN.value - before == 1, "it is missing in the file"
    assert [json.loads(each)["rules"] for each in path.read_text().splitlines()] == [2]
    assert capsys.readouterr().err == ""


def test_secrets_of_the_settings_stand_in_no_text_whoever_writes_it() -> None:
    settings = load_settings(
        flags={
            "kafka.bootstrap.servers": "a:1",
            "kafka.sasl.password": SECRET,
            "spark.hadoop.fs.s3a.endpoint": "https://kelp:planted-1@store.example/x",
            "spark.kubernetes.token.mounted": "true",
        }
    ).settings
    assert sorted(secrets_of(settings)) == [SECRET, "planted-1"]
    stream = io.StringIO()
    configure_logging(LoggingSettings(), stream, secrets=secrets_of(settings))
    log = structlog.get_logger("holdfast.daemon.test")
    try:
        raise ValueError(f"no login with {SECRET!r} at https://kelp:planted-1@store.example")
    except ValueError as error:
        log.exception("login_failed", why=str(error), tried=[{"config": json.dumps({"p": SECRET})}], is_true=True)
    logging.getLogger("aiokafka.conn").warning("refused: %s", SECRET)
    logging.getLogger("aiokafka.conn").warning("refused", exc_info=OSError(SECRET))
    assert len(lines_of(stream)) == 3
    assert SECRET not in stream.getvalue()
    assert "planted" not in stream.getvalue()
    assert not any(SECRET in line for line in LAST_LINES.lines())
    shown = describe(settings)
    assert shown["spark.hadoop.fs.s3a.endpoint"] == f"https://{REDACTED}@store.example/x"
    assert shown["kafka.sasl.password"] == REDACTED


@pytest.mark.parametrize("secret", ["a", "no", "node", "node_ready", "info", "daemon"])
def test_a_secret_that_is_a_word_of_ours_is_hidden_in_values_and_leaves_names_alone(secret: str) -> None:
    settings = load_settings(flags={"kafka.bootstrap.servers": "a:1", "kafka.sasl.password": secret}).settings
    stream = io.StringIO()
    configure_logging(LoggingSettings(), stream, secrets=secrets_of(settings))
    structlog.get_logger("holdfast.daemon.test").info("node_ready", node_id=1, given=secret, tried=[{"node": secret}])
    logging.getLogger("aiokafka.conn").warning(secret)
    ours, library = lines_of(stream)
    assert (ours["event"], ours["level"], ours["logger"]) == ("node_ready", "info", "holdfast.daemon.test")
    assert (ours["node_id"], ours["given"], ours["tried"]) == (1, REDACTED, [{"node": REDACTED}])
    assert (library["event"], library["level"]) == (REDACTED, "warning"), "a library has its text there"


def test_a_short_secret_is_hidden_as_a_whole_value_alone_and_a_longer_one_in_any_text() -> None:
    stream = io.StringIO()
    configure_logging(LoggingSettings(), stream, secrets=["sea", "tide"])
    structlog.get_logger("holdfast.daemon.test").warning("login_failed", a="sea", b="no search", c="the tides")
    (line,) = lines_of(stream)
    assert (line["a"], line["b"], line["c"]) == (REDACTED, "no search", f"the {REDACTED}s")


def test_so_many_secrets_are_kept_the_newest_ones() -> None:
    hidden = HiddenTexts()
    hidden.add(f"secret-{number:04}" for number in range(1_000))
    assert hidden.hide(["secret-0000", "secret-0743", "secret-0744", "secret-0999"]) == [
        "secret-0000",
        "secret-0743",
        REDACTED,
        REDACTED,
    ]
