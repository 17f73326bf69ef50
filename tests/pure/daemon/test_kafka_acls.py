"""What the pages say of the way into Kafka: the connections that they show, and the ACLs that they list."""

from __future__ import annotations

import re
import tomllib

import pytest

from holdfast.kafka.oauth.sources import Bearer, TokenEndpoint, TokenFile
from holdfast.kafka.security import Sasl, parse_security
from tests.kafka_acls import NEEDS, Role
from tests.pure.docs.pages import ROOT, table

PAGE = (ROOT / "docs" / "install.md").read_text()
GATEWAY_PAGE = (ROOT / "docs" / "gateway.md").read_text()
SPARK_PAGE = (ROOT / "docs" / "spark.md").read_text()
CONNECTIONS = re.findall(r"<!-- a connection to Kafka -->\n```toml\n(.*?)```", PAGE, re.DOTALL)
WAYS_IN = [("SSL", type(None)), ("SASL_SSL", Sasl), ("SASL_SSL", TokenEndpoint), ("SASL_SSL", TokenFile)]


@pytest.mark.parametrize(
    ("page", "role", "name"),
    [
        (PAGE, Role.NODE, "ACLs of the node"),
        (GATEWAY_PAGE, Role.GATEWAY, "ACLs of the gateway"),
        (PAGE, Role.CONFIG, "ACLs of config"),
        (SPARK_PAGE, Role.JOB, "ACLs of the job"),
    ],
    ids=["node", "gateway", "config", "job"],
)
def test_the_acls_are_those_of_the_table(page: str, role: Role, name: str) -> None:
    needed = [(need.operation, need.resource, need.purpose) for need in NEEDS if need.role is role]
    assert [tuple(row) for row in table(page, name)] == needed


@pytest.mark.parametrize(("snippet", "way"), list(zip(CONNECTIONS, WAYS_IN, strict=True)))
def test_a_connection_to_kafka_is_what_the_page_says(snippet: str, way: tuple[str, type]) -> None:
    security = parse_security(tomllib.loads(snippet)["kafka"])
    found = security.sasl.source if isinstance(security.sasl, Bearer) else security.sasl
    assert (security.protocol, type(found)) == way
