"""The configs of a share group: names, defaults, bounds and texts."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.delivery.group_config import (
    CONFIGS,
    DEFAULT,
    EARLIEST,
    LATEST,
    ConfigRefused,
    ConfigRow,
    GroupConfig,
    OffsetReset,
    parse,
    parse_duration_ms,
    with_configs,
)

NUMBERS = [row for row in CONFIGS.values() if row.bounds is not None]
RESET = "latest, earliest, or by_duration: and an ISO-8601 duration that is not negative, as in by_duration:P3DT12H"
#: Kafka's defaults and bounds.
KAFKAS = {
    "share.session.timeout.ms": (45_000, (45_000, 60_000)),
    "share.heartbeat.interval.ms": (5_000, (5_000, 15_000)),
    "share.record.lock.duration.ms": (30_000, (15_000, 60_000)),
    "share.auto.offset.reset": (LATEST, None),
    "share.isolation.level": (False, None),
    "share.delivery.count.limit": (5, (2, 10)),
    "share.partition.max.record.locks": (2_000, (100, 4_000)),
    "share.renew.acknowledge.enable": (True, None),
    "share.assignment.interval.ms": (1_000, (0, 15_000)),
    "share.assignor.offload.enable": (True, None),
    "errors.deadletterqueue.topic.name": ("", None),
    "errors.deadletterqueue.copy.record.enable": (False, None),
}


def error_of(name: str, text: str) -> str:
    with pytest.raises(ConfigRefused, match=r"^[^\n]*$") as raised:
        with_configs(DEFAULT, {name: text})
    return str(raised.value)


def test_table_has_each_field_once_with_kafkas_default_and_bounds() -> None:
    assert [row.field for row in CONFIGS.values()] == [field.name for field in fields(GroupConfig)]
    assert {name: (getattr(DEFAULT, row.field), row.bounds) for name, row in CONFIGS.items()} == KAFKAS
    assert with_configs(DEFAULT, {}) == DEFAULT == GroupConfig()


@pytest.mark.parametrize("row", NUMBERS, ids=lambda row: row.name)
def test_number_is_taken_at_its_bounds_and_refused_beyond(row: ConfigRow) -> None:
    assert row.bounds is not None
    low, high = row.bounds
    assert (parse(row.name, str(low)), parse(row.name, f" +{high} ")) == (low, high)
    for wrong in (str(low - 1), str(high + 1), "", "x", "5_000", "1e4", "5000.0", "٥٠٠٠", "9" * 30):
        assert error_of(row.name, wrong) == f"{row.name} is {wrong!r}; it must be a number from {low} to {high}"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("share.auto.offset.reset", "latest", LATEST),
        ("share.auto.offset.reset", " earliest ", EARLIEST),
        ("share.auto.offset.reset", "by_duration:PT0S", OffsetReset(False, 0)),
        ("share.auto.offset.reset", "by_duration:P1DT2H3M4.5S", OffsetReset(False, 93_784_500)),
        ("share.isolation.level", "read_committed", True),
        ("share.isolation.level", "read_uncommitted", False),
        ("share.renew.acknowledge.enable", "False", False),
        ("share.assignor.offload.enable", "true", True),
        ("errors.deadletterqueue.topic.name", " ", ""),
        ("errors.deadletterqueue.copy.record.enable", "true", True),
    ],
)
def test_text_is_parsed(name: str, text: str, value: object) -> None:
    assert parse(name, text) == value
    assert getattr(with_configs(DEFAULT, {name: text}), CONFIGS[name].field) == value


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        *(
            ("share.auto.offset.reset", text, RESET)
            for text in (
                "",
                "none",
                "Latest",
                "by_duration",
                "by_duration:",
                "by_duration:-PT1S",
                "by_duration:PT-0.0001S",
                f"by_duration:PT{(1 << 63) // 1_000 + 1}S",
            )
        ),
        ("share.isolation.level", "READ_COMMITTED", "read_uncommitted or read_committed"),
        ("share.renew.acknowledge.enable", "1", "true or false"),
        ("errors.deadletterqueue.topic.name", "dlq.x", "empty, because dead letters are not written yet"),
    ],
)
def test_wrong_text_is_refused_by_one_sentence(name: str, text: str, wanted: str) -> None:
    assert error_of(name, text) == f"{name} is {text!r}; it must be {wanted}"


def test_unknown_name_is_refused_with_all_names() -> None:
    error = error_of("share.sesion.timeout.ms", "45000")
    assert error.startswith("'share.sesion.timeout.ms' is no config of a share group; there are share.session.timeout")
    assert all(name in error for name in CONFIGS)


@pytest.mark.parametrize("text", ["x" * 100_000, "by_duration:PT" + "9" * 100_000 + "S"])
def test_long_value_is_cut_in_the_error(text: str) -> None:
    assert len(error_of("share.auto.offset.reset", text)) < 300


def test_session_must_be_longer_than_heartbeat() -> None:
    short = GroupConfig(session_timeout_ms=5_001)
    assert with_configs(short, {"share.heartbeat.interval.ms": "5000"}) == short
    expected = r"^share\.session\.timeout\.ms is 5001; it must be more than share\.heartbeat\.interval\.ms, 5001$"
    with pytest.raises(ConfigRefused, match=expected):
        with_configs(short, {"share.heartbeat.interval.ms": "5001"})


def test_group_keeps_what_the_changes_do_not_name() -> None:
    base = with_configs(DEFAULT, {"share.delivery.count.limit": "7"})
    config = with_configs(base, {"share.record.lock.duration.ms": "15000"})
    assert config == GroupConfig(delivery_count_limit=7, record_lock_duration_ms=15_000)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("PT20.345S", 20_345),
        ("PT15M", 900_000),
        ("PT10H", 36_000_000),
        ("P2D", 172_800_000),
        ("P2DT3H4M", 183_840_000),
        ("PT-6H3M", -21_420_000),
        ("-PT6H3M", -21_780_000),
        ("-PT-6H+3M", 21_420_000),
        ("pt1,5s", 1_500),
        ("PT1.S", 1_000),
        ("PT-0.5S", -500),
        ("PT0.0009S", 0),
    ],
)
def test_duration_is_read_as_java_does(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1", "1D", "P1DT", "P1Y", "P1M", "P1W", "PT.5S", "PT1H1D", "PT١S", "PT1S "]
)
def test_text_that_is_no_duration_is_none(text: str) -> None:
    assert parse_duration_ms(text) is None


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**9))
def test_duration_is_the_sum_of_its_parts(days: int, hours: int, minutes: int, ms: int) -> None:
    text = f"P{days}DT{hours}H{minutes}M{ms // 1000}.{ms % 1000:03}S"
    assert parse_duration_ms(text) == days * 86_400_000 + hours * 3_600_000 + minutes * 60_000 + ms


@given(st.sampled_from([LATEST, EARLIEST]) | st.builds(OffsetReset, st.just(False), st.integers(0, (1 << 63) - 1)))
def test_reset_is_read_from_what_it_is_written_as(reset: OffsetReset) -> None:
    assert parse("share.auto.offset.reset", str(reset)) == reset
