"""docs/protocol.md: its tables are those of the code."""

from __future__ import annotations

import re

from holdfast.api.share_errors import ACKNOWLEDGE_CODES, FETCH_CODES, HEARTBEAT_CODES, REQUEST_CODES
from holdfast.kafka.protocol.error_codes import NOT_COORDINATED, ErrorCode
from holdfast.tenants import TABLES
from tests.pure.docs.pages import ROOT, table

PAGE = (ROOT / "docs" / "protocol.md").read_text()


def test_the_calls_are_those_that_are_served() -> None:
    described = {int(key): (name, versions, flexible) for key, name, versions, flexible, _ in table(PAGE, "apis")}
    assert described == {
        key: (api.name, f"{api.min_version}–{api.max_version}", str(api.flexible_from))
        for key, api in TABLES.apis.items()
    }


#: An error code as our sources name it; those of kio are in lower case.
CODE = re.compile(r"\bErrorCode\.([A-Z_]+)\b")
#: What the share-state calls that we serve are answered with.
SHARE_STATE_ANSWERS = NOT_COORDINATED | {
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.FENCED_STATE_EPOCH,
}


def test_the_error_codes_are_those_of_the_code() -> None:
    described = {(name, int(code)) for code, name, *_ in table(PAGE, "error codes")}
    assert described == {(ErrorCode(code).name, code) for code in SHARE_STATE_ANSWERS}
    sources = [path for room in ("daemon", "share") for path in ROOT.glob(f"holdfast/{room}/**/*.py")]
    named = {name for path in sources for name in CODE.findall(path.read_text())}
    of_look_ups = {ErrorCode.GROUP_AUTHORIZATION_FAILED}
    of_logins = {
        ErrorCode.ILLEGAL_SASL_STATE,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.UNSUPPORTED_VERSION,
    }
    of_admin_commands = {ErrorCode.GROUP_ID_NOT_FOUND}
    of_metadata = {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID}
    known = SHARE_STATE_ANSWERS | of_look_ups | of_logins | of_admin_commands | of_metadata
    assert {ErrorCode[name] for name in named} <= known
    assert all(code.name in PAGE for code in of_logins)
    metadata = PAGE.partition("\n## Metadata\n")[2].partition("\n## ")[0]
    assert {code for code in of_metadata if code.name in metadata} == of_metadata
    look_ups = PAGE.partition("\n## FindCoordinator\n")[2].partition("\n## ")[0]
    assert {code for code in of_look_ups if code.name in look_ups} == of_look_ups


def test_the_codes_of_share_consumers_are_those_that_may_leave() -> None:
    described = {
        (int(code), name, of)
        for code, name, each, *_ in table(PAGE, "codes of share consumers")
        for of in each.split(", ")
    }
    codes = {
        "heartbeat": HEARTBEAT_CODES,
        "request": REQUEST_CODES,
        "records": FETCH_CODES,
        "acknowledgements": ACKNOWLEDGE_CODES,
    }
    assert described == {(code, ErrorCode(code).name, of) for of, those in codes.items() for code in those}


def test_the_admin_commands_are_those_of_the_node() -> None:
    assert {command.strip("`") for command, *_ in table(PAGE, "admin commands")} == TABLES.needs.commands.keys()
