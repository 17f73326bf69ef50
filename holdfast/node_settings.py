"""All settings of a node of this installation, those of its tenants among them.

It loads no tenant: commands that only read settings need none, and start sooner. `tenants` has the same settings.
"""

from __future__ import annotations

from typing import Final

from holdfast.daemon.settings.catalogue import settings_with
from holdfast.gateway.settings import COMPONENTS

SETTINGS: Final = settings_with(COMPONENTS)
