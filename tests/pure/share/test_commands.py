"""The admin commands of share state."""

from __future__ import annotations

from typing import Any

from holdfast.share.commands import ShareCommands, StartingShareCommands
from holdfast.share.tenant import COMMANDS


def test_each_command_has_its_row_and_is_there_from_the_start() -> None:
    parts: Any = None
    serving = ShareCommands(parts, parts, parts, parts, parts)
    assert serving.table().keys() | serving.decisions().keys() == COMMANDS.keys()
    assert StartingShareCommands(parts).table().keys() == COMMANDS.keys()
