"""Where settings come from: defaults, the TOML file, the environment, the config topic, flags; the later wins.

All sources are flattened to the one name of each setting, merged once, and checked once by `settings.Settings`.
A flag is `--set NAME=VALUE`, for any setting; that and the few with a flag of their own are declared in `cli.py`.
A wrong value is one line that names the setting, the value, where it came from, and what would be right.
A wrong value of the config topic keeps no node from its start: the node goes without it.
Nothing below `daemon` reads the environment, and nothing here does either: it is an argument, as what the config topic holds.

Source: Kafka's `DynamicBrokerConfig`, for the order and for what becomes of a wrong value.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from holdfast.daemon.settings.catalogue import ENVIRONMENT_PREFIX, Catalogue, Known, catalogue_of
from holdfast.daemon.settings.cluster_wide import why_not_cluster_wide
from holdfast.daemon.settings.declarations import Address, Properties, is_secret, redact
from holdfast.daemon.settings.models import Settings

#: The origin of what a node that runs has.
RUNNING: Final = "of the node that runs"
#: The origin of what the config topic holds.
CONFIG_TOPIC: Final = "in the config topic"
#: Variables that are read elsewhere and are no settings.
RESERVED_VARIABLES: Final = frozenset(
    {
        "HOLDFAST_ADDRESS",
        "HOLDFAST_CONFIG",
        "HOLDFAST_BOOTSTRAP",
        "HOLDFAST_COMMAND_CONFIG",
        "HOLDFAST_BROKER",
        "HOLDFAST_CACHE",
        "HOLDFAST_DEV_KAFKA_PORT",
        "HOLDFAST_KAFKA_HOME",
    }
)

_KAFKA = "kafka."
_BOOTSTRAP = "kafka.bootstrap.servers"
_SPARK = "spark."
_SHARE_COORDINATOR = "share.coordinator."

_OF_CLIENTS: Final = f"properties of the Kafka client begin with {_KAFKA!r}, those of Spark with {_SPARK!r}."
_PRUNING = "pruning has no clock; see pruning_dead_share"
#: Settings of Kafka's that mean nothing here, and why.
MEANINGLESS: Final = {
    "share.coordinator.threads": "one event loop owns all log partitions of a node",
    "share.coordinator.load.buffer.size": "a load reads with fetches of 4 MiB",
    "share.coordinator.cached.buffer.max.bytes": "batches are built as large as the state topic takes them",
    "share.coordinator.state.topic.prune.interval.ms": _PRUNING,
    "share.coordinator.cold.partition.snapshot.interval.ms": _PRUNING,
}


class ConfigError(Exception):
    """Settings are wrong; the text has one line for each of them."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Given(NamedTuple):
    """A value, and where it came from, as in "in node.toml"."""

    value: object
    origin: str


class Overruled(NamedTuple):
    """A value that another source overrules with a different one."""

    name: str
    #: Where it is given, and where what overrules it is, as in "in node.toml".
    origin: str
    by: str


class Loaded(NamedTuple):
    """Settings, and what an admin should hear about them once."""

    settings: Settings
    warnings: tuple[str, ...] = ()
    overruled: tuple[Overruled, ...] = ()
    #: Why the node goes without a value of the config topic, by its name.
    refused: Mapping[str, str] = MappingProxyType({})


def load_settings(
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    cluster: Mapping[str, str] | None = None,
    running: Mapping[str, object] = MappingProxyType({}),
    *,
    model: type[Settings],
) -> Loaded:
    """Merge all sources and check the result.

    Args:
        config: a TOML file; without one, the file that `HOLDFAST_CONFIG` names in `environment`, if it does.
        environment: variables such as os.environ; those that do not begin with `HOLDFAST_` are not looked at.
        flags: by name of the setting (`kafka.` before properties of the client); None means not given.
        cluster: what the config topic holds, by name of the setting.
        running: what a node that runs has, by name of the setting, in place of the defaults.
        model: all settings that there are, those of tenants among them (`Tables.settings`).

    Raises:
        ConfigError: with every problem found, not only the first.
    """
    environment, catalogue = environment or {}, catalogue_of(model)
    if config is None and environment.get("HOLDFAST_CONFIG"):
        config = Path(environment["HOLDFAST_CONFIG"])
    problems: list[str] = []
    warnings: list[str] = []
    in_file = {} if config is None else _resolve(_flatten(_read_toml(config)), f"in {config.name}", problems, catalogue)
    in_environment = _from_environment(environment, warnings, catalogue)
    flat_flags = [(name, value) for name, value in (flags or {}).items() if value is not None]
    in_node = {name: Given(value, RUNNING) for name, value in running.items()}
    own = (in_node, in_file, in_environment), _resolve(flat_flags, "as a flag", problems, catalogue)
    given = _merge(*own[0], own[1])
    warnings += [
        f"{name} ({given[name].origin}) has no effect here: {reason}."
        for name, reason in MEANINGLESS.items()
        if name in given
    ]
    for name, (value, origin) in given.items():
        known = catalogue.known.get(name)
        if isinstance(value, bool) and known and known.field.annotation is not bool:
            problems.append(f"{name} is {_show(value)} ({origin}); it must be {expected(known.field)}.")
    if problems:
        raise ConfigError(problems)
    return _settle(*own, cluster or {}, model)._replace(warnings=tuple(sorted(warnings)))


def check_cluster_change(before: Mapping[str, str], after: Mapping[str, str], model: type[Settings]) -> None:
    """Check a change of what the config topic holds as a node would that has no other settings.

    What was refused before the change, and is not part of it, is no problem of the change.

    Raises:
        ConfigError: with every problem that the change would bring.
    """

    def refused(values: Mapping[str, str]) -> Mapping[str, str]:
        return _settle((), {_BOOTSTRAP: Given("host:1", "")}, values, model).refused

    unchanged = {name for name in refused(before) if before[name] == after.get(name)}
    if problems := [why for name, why in refused(after).items() if name not in unchanged]:
        raise ConfigError(list(dict.fromkeys(problems)))


def cluster_wide_name(path: str, model: type[Settings]) -> str:
    """Return the one name of the setting that `path` spells.

    Raises:
        ConfigError: this version knows no such setting, or it is none for all nodes.
    """
    catalogue = catalogue_of(model)
    name = _canonical(path, catalogue)
    if name is None:
        raise ConfigError(
            [f"{path} is no setting; {_suggest(path, catalogue) or '`holdfast settings` shows all of a node.'}"]
        )
    if name in MEANINGLESS:
        raise ConfigError([f"{name} has no effect here: {MEANINGLESS[name]}."])
    if why := why_not_cluster_wide(name, catalogue.known):
        raise ConfigError([f"{name} cannot be set for all nodes: {why}."])
    return name


def with_flags(flags: Mapping[str, object], own: Mapping[str, object], model: type[Settings]) -> dict[str, object]:
    """Return flags with those of `own`, which have their one name, in place of any other spelling of them."""
    catalogue = catalogue_of(model)
    return {path: value for path, value in flags.items() if _canonical(path, catalogue) not in own} | dict(own)


def describe(settings: Settings) -> dict[str, Any]:
    """Return every setting by its name, secrets hidden: fit for a log line or a status page."""
    values = {name: redact(name, value) for name, value in _values(settings).items()}
    return values | _open_values(settings, Properties.redacted)


def running_settings(described: Mapping[str, object], model: type[Settings]) -> dict[str, object]:
    """Return what `load_settings` takes of what a node shows of itself: known settings without secrets.

    How it comes to Kafka is taken whole or, where a secret is part of it, not at all.
    """
    names = catalogue_of(model).known
    known = {name: value for name, value in described.items() if name in names and not is_secret(name)}
    kafka = {name: value for name, value in described.items() if name.startswith(_KAFKA) and name not in names}
    return known if any(is_secret(name) for name in kafka) else known | kafka


def to_flags(settings: Settings) -> dict[str, Any]:
    """Return what `load_settings` takes as flags to give the same settings again, secrets among it."""
    return _values(settings) | _open_values(settings, lambda component: component.properties)


def _values(settings: Settings) -> dict[str, Any]:
    return {
        known.name: getattr(getattr(settings, known.component) if known.component else settings, known.attribute)
        for known in catalogue_of(type(settings)).known.values()
    }


def _open_values(settings: Settings, properties: Callable[[Properties], Mapping[str, str]]) -> dict[str, str]:
    """Return the settings of components that take any name, by their names."""
    return {
        each.name_of(name): value
        for each in catalogue_of(type(settings)).open_components
        for name, value in properties(getattr(settings, each.component)).items()
    }


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


def _settle(
    before: Sequence[Mapping[str, Given]],
    flags: Mapping[str, Given],
    cluster: Mapping[str, str],
    model: type[Settings],
) -> Loaded:
    """Merge the config topic's values between the other sources, without those that are wrong.

    Where several values do not go together and none of them is wrong by itself, all values of the config topic are left out.

    Raises:
        ConfigError: the other sources are wrong by themselves.
    """
    catalogue = catalogue_of(model)
    refused = {name: why for name in cluster if (why := _why_refused(name, model))}
    while True:
        taken = {name: Given(text, CONFIG_TOPIC) for name, text in cluster.items() if name not in refused}
        sources = *before, taken, flags
        given = {name: value for name, value in _merge(*sources).items() if name not in MEANINGLESS}
        try:
            settings = model.model_validate(_nest(given, catalogue))
        except ValidationError as error:
            problems = [
                (_place(detail, catalogue), _explain(detail, given, catalogue))
                for detail in error.errors(include_url=False)
            ]
            texts = [text for _, text in problems]
            if not taken:
                raise ConfigError(texts) from None
            at_fault = {name: text for name, text in problems if name in taken and given[name] is taken[name]}
            refused |= at_fault or dict.fromkeys(taken, " ".join(texts))
            continue
        overruled = tuple(
            Overruled(name, value.origin, given[name].origin)
            for source in sources
            for name, value in source.items()
            if value.origin != RUNNING and name in given and _to_text(value.value) != _to_text(given[name].value)
        )
        return Loaded(settings, overruled=overruled, refused=refused)


def _why_refused(name: str, model: type[Settings]) -> str:
    """Return why the node goes without a value of the config topic, whatever it is; empty where it does not."""
    try:
        if (one := cluster_wide_name(name, model)) != name:
            return f"{name} is another spelling of {one}."
    except ConfigError as error:
        return str(error)
    return ""


def _merge(*sources: Mapping[str, Given]) -> dict[str, Given]:
    """Return each value of the last source that has one."""
    return {name: value for source in sources for name, value in source.items()}


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        # Some editors put a byte order mark before the first line.
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
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


def _resolve(
    values: Iterable[tuple[str, object]], origin: str, problems: list[str], catalogue: Catalogue
) -> dict[str, Given]:
    found: dict[str, Given] = {}
    for path, value in values:
        name = _canonical(path, catalogue)
        if name is None:
            problems.append(f"{path} ({origin}) is no setting; {_suggest(path, catalogue) or _OF_CLIENTS}")
        elif name in found:
            problems.append(f"{name} is given twice ({origin}); keep one of them.")
        else:
            found[name] = Given(value, origin)
    return found


def _canonical(path: str, catalogue: Catalogue) -> str | None:
    """Return the one name of the setting that `path` spells, or None."""
    if path in catalogue.known or path in MEANINGLESS:
        return path
    table, _, rest = path.partition(".")
    if rest and (table in catalogue.tables or table == "kafka") and (rest in catalogue.known or rest in MEANINGLESS):
        return rest
    if catalogue.find_open(path) and not path.startswith(_KAFKA + _SHARE_COORDINATOR):
        return path
    return None


def _suggest(path: str, catalogue: Catalogue) -> str:
    """Return which setting may be meant; empty where none is like it."""
    bare = {known.attribute: known.name for known in catalogue.known.values()}
    bare |= {name: name for name in (*catalogue.known, *MEANINGLESS)}
    # A whole name but for a letter or two; else, with its table and without, that which is nearer to a setting.
    near = [(1.0, found) for found in get_close_matches(path, bare, n=1, cutoff=0.9)] or [
        (SequenceMatcher(None, found, spelling).ratio(), found)
        for spelling in (path, path.rpartition(".")[2])
        for found in get_close_matches(spelling, bare, n=1, cutoff=0.7)
    ]
    if near:
        return f"did you mean {bare[max(near)[1]]}?"
    for beginning in (each.beginning for each in catalogue.open_components):
        if get_close_matches(path[: len(beginning)], [beginning], cutoff=0.8):
            return f"did you mean a name that begins with {beginning!r}?"
    return ""


def _from_environment(environment: Mapping[str, str], warnings: list[str], catalogue: Catalogue) -> dict[str, Given]:
    """Take our variables; an unknown one is a warning only: Kubernetes sets some itself, such as HOLDFAST_SERVICE_HOST."""
    found: dict[str, Given] = {}
    kafka_prefix = ENVIRONMENT_PREFIX + "KAFKA_"
    meaningless = {Known(name, "", "", FieldInfo()).variable: name for name in MEANINGLESS}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in RESERVED_VARIABLES:
            continue
        name = catalogue.by_variable.get(variable) or meaningless.get(variable)
        if name is None and variable.startswith(kafka_prefix):
            name = _KAFKA + variable.removeprefix(kafka_prefix).lower().replace("_", ".")
        if name is None:
            near = get_close_matches(variable, catalogue.by_variable, n=1, cutoff=0.8)
            hint = f" Did you mean {near[0]}?" if near else ""
            warnings.append(f"The environment variable {variable} sets nothing.{hint}")
        else:
            found[name] = Given(value, f"from {variable}")
    return found


def _nest(given: Mapping[str, Given], catalogue: Catalogue) -> dict[str, Any]:
    nested: dict[str, Any] = {each.component: {"properties": {}} for each in catalogue.open_components}
    for name, (value, _) in given.items():
        known = catalogue.known.get(name)
        if known is None:
            is_scalar = isinstance(value, (str, int, float))
            open_component = catalogue.find_open(name)
            assert open_component is not None, name
            properties = nested[open_component.component]["properties"]
            properties[open_component.property_of(name)] = _to_text(value) if is_scalar else value
        elif known.component:
            nested.setdefault(known.component, {})[known.attribute] = value
        else:
            nested[known.attribute] = value
    return nested


def _place(detail: Any, catalogue: Catalogue) -> str:  # noqa: ANN401
    """Return the name of the setting that one of pydantic's findings is about; empty where it is about several."""
    place = tuple(str(part) for part in detail["loc"])
    known = catalogue.by_place.get(place[:2]) or catalogue.by_place.get(place[:1])
    if known is not None:
        return known.name
    if place[1:2] != ("properties",) or len(place) <= 2:
        return ""
    return next(each.name_of(place[2]) for each in catalogue.open_components if each.component == place[0])


def _explain(detail: Any, given: Mapping[str, Given], catalogue: Catalogue) -> str:  # noqa: ANN401
    """Turn one of pydantic's findings into our one line."""
    name, why = _place(detail, catalogue), str(detail["msg"]).removeprefix("Value error, ")
    if not name:
        return f"{why}."
    if (
        detail["type"] != "value_error"
    ):  # pydantic's; what a check of ours says is better than what the declaration says
        known = catalogue.known.get(name)
        why = f"it must be {expected(known.field) if known else 'a text, a number, true or false'}"
    value, origin = given.get(name, Given(None, "by default"))
    return f"{name} is {'hidden' if is_secret(name) else _show(redact(name, value))} ({origin}); {why}."


def _show(value: object) -> str:
    return repr(value) if isinstance(value, str) else _to_text(value)


def _to_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
