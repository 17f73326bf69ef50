"""The applications that the nodes of this installation host; `holdfast serve` hands their tables to a node."""

from __future__ import annotations

from typing import Final

from holdfast.daemon.tenant import Tables
from holdfast.gateway.tenant import GATEWAY_TENANT
from holdfast.share.tenant import SHARE_TENANT

TABLES: Final = Tables(SHARE_TENANT, [GATEWAY_TENANT])
