"""All settings of a node of this installation, those of its tenants among them.

It loads no tenant: commands that only read settings need none, and start sooner. `tenants` has the same settings.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from holdfast.daemon.settings import file_env_flags
from holdfast.daemon.settings.catalogue import settings_with
from holdfast.gateway.settings import COMPONENTS as OF_GATEWAY
from holdfast.share.settings import COMPONENTS as OF_SHARE

SETTINGS: Final = settings_with({**OF_SHARE, **OF_GATEWAY})
#: `file_env_flags.load_settings` with all of them.
load_settings: Final = partial(file_env_flags.load_settings, model=SETTINGS)
