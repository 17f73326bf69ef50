"""Commands that are imported when they are looked up, so that none waits for what only others need."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any

import click


class LazyCommands(MutableMapping[str, click.Command]):
    """The commands of a click group by their names, each in shape once it is looked up: its help, and what it takes.

    Args:
        places: of the commands that are imported then, `module:attribute` by name, the module in `holdfast.console.commands`.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = dict(places)
        self._added: dict[str, click.Command] = {}
        self._ready: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._ready:
            command = self._added[name] if name in self._added else _import(self._places[name])
            shape(command)
            self._ready[name] = command
        return self._ready[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._ready.pop(name, None)
        self._added[name] = command

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        for names in (self._places, self._added, self._ready):
            names.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._added or name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter({**self._places, **self._added})

    def __len__(self) -> int:
        return len({**self._places, **self._added})


def shape(command: click.Command) -> None:
    """Bring a command into the shape of all: how its help stands, and what texts it takes.

    Once for each command: of a group also for its commands, unless those are lazy and have it done when they are looked up.
    """
    for each in _with_inner(command):
        _shape_help(each)
        _refuse_other_bytes(each)


def _with_inner(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group) and not isinstance(command.commands, LazyCommands):
        for inner in command.commands.values():
            yield from _with_inner(inner)


def _shape_help(command: click.Command) -> None:
    """Keep each example on a line of its own, to be copied out of the help, and the first sentence whole in lists of commands."""
    text = inspect.cleandoc(command.help or "")
    command.short_help = " ".join(text.partition("\n\n")[0].split())
    command.help = text.replace("Example:", "\b\nExample:")


class _Utf8(click.types.StringParamType):
    """A text in UTF-8, as names on Kafka's wire and addresses are; of other bytes Python makes characters that cannot be sent."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401
        text: str = super().convert(value, param, ctx)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"{text!r} is not in UTF-8, as everything but a path must be", param, ctx)
        return text


def _refuse_other_bytes(command: click.Command) -> None:
    """Have a command take texts in UTF-8 alone; paths are as the file system has them."""
    for parameter in command.params:
        if parameter.type is click.STRING:
            parameter.type = _Utf8()


def _import(place: str) -> click.Command:
    module, _, attribute = place.partition(":")
    command = getattr(import_module(f"holdfast.console.commands.{module}"), attribute)
    assert isinstance(command, click.Command)
    return command
