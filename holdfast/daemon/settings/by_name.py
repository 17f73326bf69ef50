"""From settings to a component's configuration, by name."""

import dataclasses
from typing import Any, TypeVar

from holdfast.daemon.settings.declarations import Component

Config = TypeVar("Config")


def configure(config: type[Config], *components: Component, **given: Any) -> Config:  # noqa: ANN401
    """Return a component's configuration: each field as `given`, or else the setting of its name in one of `components`.

    Args:
        config: a data class, or a named tuple.
        components: where settings are looked for.
        given: fields that are no setting, or not the setting as it is.

    Raises:
        TypeError: a field without a default is neither.
        ValueError: several components have a setting of its name.
    """
    for name in field_names(config):
        values = [getattr(each, name) for each in components if name in type(each).model_fields]
        if name not in given and values:
            if len(values) > 1:
                raise ValueError(f"{name} is the name of {len(values)} settings; give it by hand")
            given[name] = values[0]
    return config(**given)


def field_names(config: Any) -> tuple[str, ...]:  # noqa: ANN401 - the type of a data class or a named tuple
    """Return the names of a configuration's fields."""
    if issubclass(config, tuple):
        return tuple(config._fields)
    return tuple(field.name for field in dataclasses.fields(config))
