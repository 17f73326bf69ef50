"""Where settings come from: defaults, the TOML file, the environment, flags; the later wins.

All sources are flattened to the one name of each setting, merged once, and checked once by `settings.Settings`.
A wrong value is one line that names the setting, the value, where it came from, and what would be right.
Nothing below `daemon` reads the environment, and nothing here does either: it is an argument.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from holdfast.daemon.settings.declarations import Address, Component, Properties, is_secret
from holdfast.daemon.settings.models import Settings

ENVIRONMENT_PREFIX: Final = "HOLDFAST_"
#: Variables that are read elsewhere and are no settings.
RESERVED_VARIABLES: Final = frozenset(
    {
        "HOLDFAST_CONFIG",
        "HOLDFAST_BOOTSTRAP",
        "HOLDFAST_BROKER",
        "HOLDFAST_CACHE",
        "HOLDFAST_DEV_KAFKA_PORT",
        "HOLDFAST_KAFKA_HOME",
    }
)

_KAFKA = "kafka."
_SPARK = "spark."
_SHARE_COORDINATOR = "share.coordinator."

_PRUNING = "pruning has no clock; see pruning_dead_share"
#: Settings of Kafka's that mean nothing here, and why.
MEANINGLESS: Final = {
    "share.coordinator.threads": "one event loop owns all log partitions of a node",
    "share.coordinator.load.buffer.size": "a load reads with fetches of fetch_partition_bytes_max",
    "share.coordinator.cached.buffer.max.bytes": "batches are built as large as the state topic takes them",
    "share.coordinator.state.topic.prune.interval.ms": _PRUNING,
    "share.coordinator.cold.partition.snapshot.interval.ms": _PRUNING,
}


class ConfigError(Exception):
    """Settings are wrong; the text has one line for each of them."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Known(NamedTuple):
    """A setting: its name, where it lives in `Settings`, and its declaration."""

    name: str
    component: str  #: attribute of `Settings`; empty for those of the node itself
    attribute: str
    field: FieldInfo

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return ENVIRONMENT_PREFIX + re.sub(r"\W", "_", self.name).upper()


class Given(NamedTuple):
    """A value, and where it came from, as in "in node.toml"."""

    value: object
    origin: str


class Loaded(NamedTuple):
    """Settings, and what an admin should hear about them once."""

    settings: Settings
    warnings: tuple[str, ...]


def _known_settings() -> Iterator[Known]:
    for attribute, field in Settings.model_fields.items():
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, Component)):
            yield Known(attribute, "", attribute, field)
        elif not issubclass(field.annotation, Properties):
            prefix = field.annotation.name_prefix
            for inner, declared in field.annotation.model_fields.items():
                extra = declared.json_schema_extra
                name = prefix + inner.replace("_", ".") if prefix else inner
                yield Known(str(extra["kafka"]) if isinstance(extra, dict) else name, attribute, inner, declared)


KNOWN: Final = {known.name: known for known in _known_settings()}
_TABLES: Final = frozenset(known.component for known in KNOWN.values())
_BY_PLACE: Final = {tuple(filter(None, (known.component, known.attribute))): known for known in KNOWN.values()}
_BY_VARIABLE: Final = {known.variable: known.name for known in KNOWN.values()}


def load_settings(
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Loaded:
    """Merge all sources and check the result.

    Args:
        config: a TOML file; without one, the file that `HOLDFAST_CONFIG` names in `environment`, if it does.
        environment: variables such as os.environ; those that do not begin with `HOLDFAST_` are not looked at.
        flags: by name of the setting (`kafka.` before properties of the client); None means not given.

    Raises:
        ConfigError: with every problem found, not only the first.
    """
    environment = environment or {}
    if config is None and environment.get("HOLDFAST_CONFIG"):
        config = Path(environment["HOLDFAST_CONFIG"])
    problems: list[str] = []
    warnings: list[str] = []
    given: dict[str, Given] = {}
    if config is not None:
        given |= _resolve(_flatten(_read_toml(config)), f"in {config.name}", problems)
    given |= _from_environment(environment, warnings)
    flat_flags = [(name, value) for name, value in (flags or {}).items() if value is not None]
    given |= _resolve(flat_flags, "as a flag", problems)
    warnings += [
        f"{name} ({given.pop(name).origin}) has no effect here: {reason}."
        for name, reason in MEANINGLESS.items()
        if name in given
    ]
    for name, (value, origin) in given.items():
        if isinstance(value, bool) and name in KNOWN and KNOWN[name].field.annotation is not bool:
            problems.append(f"{name} is {_show(value)} ({origin}); it must be {expected(KNOWN[name].field)}.")
    if problems:
        raise ConfigError(problems)
    try:
        return Loaded(Settings.model_validate(_nest(given)), tuple(sorted(warnings)))
    except ValidationError as error:
        raise ConfigError([_explain(detail, given) for detail in error.errors(include_url=False)]) from None


def describe(settings: Settings) -> dict[str, Any]:
    """Return every setting by its name, secrets hidden: fit for a log line or a status page."""
    values: dict[str, Any] = {
        known.name: getattr(getattr(settings, known.component) if known.component else settings, known.attribute)
        for known in KNOWN.values()
    }
    kafka = {_KAFKA + name: value for name, value in settings.kafka.redacted().items()}
    return values | kafka | settings.spark.redacted()


def to_flags(settings: Settings) -> dict[str, Any]:
    """Return what `load_settings` takes as flags to give the same settings again, secrets among it."""
    values = {name: value for name, value in describe(settings).items() if name in KNOWN}
    return (
        values
        | {_KAFKA + name: value for name, value in settings.kafka.properties.items()}
        | dict(settings.spark.properties)
    )


def expected(field: FieldInfo) -> str:
    """Say which values a setting takes, as in "a whole number from 0 to 500"."""
    annotation = field.annotation
    limits = {key: getattr(rule, key) for rule in field.metadata for key in ("ge", "le") if hasattr(rule, key)}
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(get_args(annotation))
    if annotation is bool:
        return "true or false"
    if annotation in (int, float):
        return f"a {'whole ' if annotation is int else ''}number from {limits['ge']} to {limits['le']}"
    if get_origin(annotation) is tuple:
        return "a list of names"
    if any(rule in field.metadata for rule in get_args(Address)[1:]):
        return "host:port, as in 127.0.0.1:9492 or [::1]:9492"
    rules = {
        key: getattr(rule, key) for rule in field.metadata for key in ("min_length", "max_length") if hasattr(rule, key)
    }
    if any(getattr(rule, "pattern", None) for rule in field.metadata):
        return f"{rules.get('min_length', 0)} to {rules['max_length']} letters, digits, dots, dashes or underscores"
    return f"a text of {rules.get('min_length', 0)} to {rules['max_length']} characters" if rules else "a text"


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            [f"The config file {path} cannot be read ({error.strerror}); name another with --config."]
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([f"The config file {path} is not TOML: {error}."]) from None


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield (dotted name, value): tables, dotted keys and quoted keys come out alike."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _resolve(values: Any, origin: str, problems: list[str]) -> dict[str, Given]:  # noqa: ANN401
    found: dict[str, Given] = {}
    for path, value in values:
        name = _canonical(path)
        if name is None:
            problems.append(f"{path} ({origin}) is no setting; {_suggest(path)}")
        elif name in found:
            problems.append(f"{name} is given twice ({origin}); keep one of them.")
        else:
            found[name] = Given(value, origin)
    return found


def _canonical(path: str) -> str | None:
    """Return the one name of the setting that `path` spells, or None."""
    if path in KNOWN or path in MEANINGLESS:
        return path
    table, _, rest = path.partition(".")
    if rest and (table in _TABLES or table == "kafka") and (rest in KNOWN or rest in MEANINGLESS):
        return rest
    if path.startswith(_SPARK) or (path.startswith(_KAFKA) and not rest.startswith(_SHARE_COORDINATOR)):
        return path
    return None


def _suggest(path: str) -> str:
    bare = {known.attribute: known.name for known in KNOWN.values()} | {name: name for name in (*KNOWN, *MEANINGLESS)}
    for spelling in (path, path.rpartition(".")[2]):
        if near := get_close_matches(spelling, bare, n=1, cutoff=0.7):
            return f"did you mean {bare[near[0]]}?"
    return f"properties of the Kafka client begin with {_KAFKA!r}, those of Spark with {_SPARK!r}."


def _from_environment(environment: Mapping[str, str], warnings: list[str]) -> dict[str, Given]:
    """Take our variables; an unknown one is a warning only: Kubernetes sets some itself, such as HOLDFAST_SERVICE_HOST."""
    found: dict[str, Given] = {}
    kafka_prefix = ENVIRONMENT_PREFIX + "KAFKA_"
    meaningless = {Known(name, "", "", FieldInfo()).variable: name for name in MEANINGLESS}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in RESERVED_VARIABLES:
            continue
        name = _BY_VARIABLE.get(variable) or meaningless.get(variable)
        if name is None and variable.startswith(kafka_prefix):
            name = _KAFKA + variable.removeprefix(kafka_prefix).lower().replace("_", ".")
        if name is None:
            near = get_close_matches(variable, _BY_VARIABLE, n=1, cutoff=0.8)
            hint = f" Did you mean {near[0]}?" if near else ""
            warnings.append(f"The environment variable {variable} sets nothing.{hint}")
        else:
            found[name] = Given(value, f"from {variable}")
    return found


def _nest(given: Mapping[str, Given]) -> dict[str, Any]:
    kafka: dict[str, object] = {}
    spark: dict[str, object] = {}
    nested: dict[str, Any] = {"kafka": {"properties": kafka}, "spark": {"properties": spark}}
    for name, (value, _) in given.items():
        known = KNOWN.get(name)
        if known is None:
            is_scalar = isinstance(value, (str, int, float))
            text = _to_text(value) if is_scalar else value
            if name.startswith(_SPARK):
                spark[name] = text  # its properties begin with `spark.` themselves
            else:
                kafka[name.removeprefix(_KAFKA)] = text
        elif known.component:
            nested.setdefault(known.component, {})[known.attribute] = value
        else:
            nested[known.attribute] = value
    return nested


def _explain(detail: Any, given: Mapping[str, Given]) -> str:  # noqa: ANN401
    """Turn one of pydantic's findings into our one line."""
    place = tuple(str(part) for part in detail["loc"])
    known = _BY_PLACE.get(place[:2]) or _BY_PLACE.get(place[:1])
    if known is not None:
        name, must = known.name, expected(known.field)
    elif place[1:2] == ("properties",) and len(place) > 2:
        name, must = (_KAFKA if place[0] == "kafka" else "") + place[2], "a text, a number, true or false"
    else:
        return str(detail["msg"]).removeprefix("Value error, ") + "."
    value, origin = given.get(name, Given(None, "by default"))
    return f"{name} is {'hidden' if is_secret(name) else _show(value)} ({origin}); it must be {must}."


def _show(value: object) -> str:
    return repr(value) if isinstance(value, str) else _to_text(value)


def _to_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
