"""The certificates of listeners with TLS."""

from __future__ import annotations

import pytest

from tests.world.identity.certificates import Authority, Pair


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def node(authority: Authority) -> Pair:
    return authority.sign("node", "/CN=node", days=30)
