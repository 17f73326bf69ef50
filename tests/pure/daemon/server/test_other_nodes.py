"""What a node asks of another one: a refusal to answer is a line that names who lacks what, now and then."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.server.admin import Admin
from holdfast.daemon.server.api_table import ApiHandler
from holdfast.daemon.server.other_nodes import NodeSilent, OtherNodes
from tests.waiting import PATIENCE_MS
from tests.world.access import closed
from tests.world.serving import FakeCluster, FakeService, serve


async def test_a_query_that_is_denied_is_a_line_with_the_rule_that_is_missing() -> None:
    admin = Admin({"metrics": lambda _: {}}, PATIENCE_MS)
    handler = ApiHandler(FakeService(), FakeCluster(), admin, closed())
    nodes = OtherNodes()
    async with serve(handler=handler) as served:
        with capture_logs() as lines:
            for _ in range(3):
                with pytest.raises(
                    NodeSilent, match="User:ANONYMOUS may not DESCRIBE the CLUSTER, which metrics needs"
                ):
                    await nodes.query(served.address, "metrics", PATIENCE_MS)
        [line] = [each for each in lines if each["event"] == "node_query_denied"]
        assert (line["address"], line["command"]) == (served.address, "metrics")
        assert "`holdfast acls add --allow-principal User:ANONYMOUS --operation DESCRIBE --cluster`" in line["why"]
    await admin.close()
