"""The settings of a node by their names, those of its tenants among them."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from pydantic import create_model
from pydantic.fields import FieldInfo

from holdfast.daemon.settings.declarations import Component, Properties, declared_text
from holdfast.daemon.settings.models import Settings

ENVIRONMENT_PREFIX: Final = "HOLDFAST_"


class Known(NamedTuple):
    """A setting: its name, where it lives in `Settings`, and its declaration."""

    name: str
    component: str  #: attribute of `Settings`; empty for those of the node itself
    attribute: str
    field: FieldInfo

    @property
    def variable(self) -> str:
        """Return the environment variable that sets it."""
        return ENVIRONMENT_PREFIX + re.sub(r"\W", "_", self.name).upper()

    @property
    def why_node_only(self) -> str:
        """Return the reason of its declaration for which no value can hold for all nodes; empty if it has none."""
        return declared_text(self.field, "why_node_only")


class OpenComponent(NamedTuple):
    """A component that takes any name after a beginning."""

    component: str  #: attribute of `Settings`
    beginning: str
    keeps_beginning: bool  #: whether the beginning is part of the property's own name

    def property_of(self, name: str) -> str:
        """Return the property that a setting sets."""
        return name if self.keeps_beginning else name.removeprefix(self.beginning)

    def name_of(self, property_name: str) -> str:
        """Return the name of the setting that sets a property."""
        return property_name if self.keeps_beginning else self.beginning + property_name


class Catalogue(NamedTuple):
    """All settings of one model."""

    known: Mapping[str, Known]
    #: Components, which are the tables of the TOML file.
    tables: frozenset[str]
    by_place: Mapping[tuple[str, ...], Known]
    #: Names, by the environment variable that sets each.
    by_variable: Mapping[str, str]
    open_components: tuple[OpenComponent, ...]

    def find_open(self, name: str) -> OpenComponent | None:
        """Return the component that takes a name by its beginning; None: there is none."""
        return next((each for each in self.open_components if name.startswith(each.beginning)), None)


def settings_with(components: Mapping[str, type[Component]]) -> type[Settings]:
    """Return the model of the host's settings and of further components, by name, whose settings all have a default.

    Raises:
        ValueError: a component or a setting has the name of another, or a component takes any name, and no beginning tells which.
    """
    if repeated := sorted(components.keys() & Settings.model_fields.keys()):
        raise ValueError(f"settings component {repeated[0]} has two rows")
    for name, component in components.items():
        if issubclass(component, Properties) and not component.name_prefix:
            raise ValueError(
                f"settings component {name} takes any name; give it a name_prefix, or declare each setting"
            )
    fields: dict[str, Any] = {name: (component, component()) for name, component in components.items()}
    model: type[Settings] = create_model("NodeSettings", __base__=Settings, **fields)
    catalogue_of(model)
    return model


@cache
def catalogue_of(model: type[Settings]) -> Catalogue:
    """Return the settings of a model by their names.

    Raises:
        ValueError: two settings have one name, or one environment variable.
    """
    settings = tuple(_settings_of(model))
    by_variable: dict[str, str] = {}
    for each in settings:
        if each.variable in by_variable:
            raise ValueError(f"settings {by_variable[each.variable]} and {each.name} are both set by {each.variable}")
        by_variable[each.variable] = each.name
    return Catalogue(
        {each.name: each for each in settings},
        frozenset(each.component for each in settings),
        {tuple(filter(None, (each.component, each.attribute))): each for each in settings},
        by_variable,
        tuple(
            OpenComponent(name, field.annotation.name_prefix, field.annotation.keeps_prefix)
            for name, field in model.model_fields.items()
            if isinstance(field.annotation, type) and issubclass(field.annotation, Properties)
        ),
    )


def _settings_of(model: type[Settings]) -> Iterator[Known]:
    for attribute, field in model.model_fields.items():
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, Component)):
            yield Known(attribute, "", attribute, field)
        elif not issubclass(field.annotation, Properties):
            prefix = field.annotation.name_prefix
            for inner, declared in field.annotation.model_fields.items():
                name = prefix + inner.replace("_", ".") if prefix else inner
                yield Known(declared_text(declared, "kafka") or name, attribute, inner, declared)
