"""Kafka's error codes against kio, which is generated from Apache Kafka's sources."""

from kio.schema import errors

from holdfast.kafka.protocol import error_codes
from holdfast.kafka.protocol.error_codes import ErrorCode, error_name, name_and_number


def test_every_code_has_kafkas_number_and_name() -> None:
    kafkas = {code.name.upper(): code.value for code in errors.ErrorCode}
    assert {code.name: code.value for code in ErrorCode}.items() >= kafkas.items()


def test_a_code_that_nobody_knows_has_a_name_too() -> None:
    assert (error_name(16), error_name(-1), error_name(9_999)) == (
        "NOT_COORDINATOR",
        "UNKNOWN_SERVER_ERROR",
        "UNKNOWN_ERROR_CODE",
    )


def test_people_are_shown_the_name_and_the_number() -> None:
    shown = [name_and_number(code) for code in (16, ErrorCode.NOT_COORDINATOR, 9_999)]
    assert shown == ["NOT_COORDINATOR (16)", "NOT_COORDINATOR (16)", "UNKNOWN_ERROR_CODE (9999)"]


def test_groups_are_queried_for_plain_numbers() -> None:
    groups = [group for group in vars(error_codes).values() if isinstance(group, frozenset)]
    assert len(groups) == 9
    assert {type(code) for group in groups for code in group} == {int}


def test_what_is_tried_again_is_no_success() -> None:
    retriable = (error_codes.PRODUCE_RETRIABLE, error_codes.GROUP_OFFSETS_RETRIABLE, error_codes.SHARE_STATE_RETRIABLE)
    assert not any(ErrorCode.NONE in group for group in retriable)
