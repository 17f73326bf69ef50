"""The ACL that an error says is missing."""

from __future__ import annotations

import pytest

from holdfast.kafka.protocol.denials import acl_remedy
from holdfast.kafka.protocol.error_codes import ErrorCode


@pytest.mark.parametrize("kind", ["TOPIC", "GROUP", "CLUSTER"])
def test_a_denial_names_the_acl_to_add(kind: str) -> None:
    code = ErrorCode[f"{kind}_AUTHORIZATION_FAILED"]
    assert acl_remedy(code, "Read", "topic log", "User:node") == "; allow Read on topic log to User:node"
    assert acl_remedy(code, "Read", "topic log").startswith(
        "; allow Read on topic log to this client's principal (User: "
    )


def test_any_other_error_says_no_more_than_it_did() -> None:
    assert acl_remedy(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Read", "topic log") == ""
