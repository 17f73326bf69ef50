"""The page `docs/configuration.md`, written from the settings; `python -m tools.settings_reference` prints it."""

import sys
from collections.abc import Iterator, Mapping

from holdfast.daemon.settings.declarations import Component
from holdfast.daemon.settings.file_env_flags import KNOWN, MEANINGLESS, Known, expected
from holdfast.daemon.settings.models import OWNED_PROPERTIES, Settings
from holdfast.daemon.settings.snapshot_models import OWNED_SPARK_PROPERTIES

_HEAD = """\
# Configuration

This page is written by `python -m tools.settings_reference` from `holdfast/daemon/settings/models.py`.

A setting has one name everywhere. Sources are merged once, and the later wins:

1. the defaults below;
2. a TOML file: `--config FILE`, or the environment variable `HOLDFAST_CONFIG`;
3. the environment: `HOLDFAST_` and the name in capitals, with `_` in place of dots;
4. flags: `--set NAME=VALUE`.

```toml
node_id = 1

[listener]                       # tables only group; their names may be left out
listen = "0.0.0.0:9492"
advertised_listener = "coordinator.example:9492"

[kafka]                          # properties of librdkafka, passed to every client
"bootstrap.servers" = "kafka.example:9092"
"security.protocol" = "SASL_SSL"

[share.coordinator]              # the same as "share.coordinator.write.timeout.ms" = 5000
write.timeout.ms = 5000
```

The same write timeout as a variable is `HOLDFAST_SHARE_COORDINATOR_WRITE_TIMEOUT_MS=5000`,
and the brokers are `HOLDFAST_KAFKA_BOOTSTRAP_SERVERS=kafka.example:9092`.

An unknown name is an error that suggests the nearest one.
In the environment it is only a warning, because platforms add variables of their own.
Values of properties that hold secrets are never shown.
"""


def render_reference() -> str:
    """Return the whole page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD
    yield "## The node\n"
    yield from _table(known for known in KNOWN.values() if not known.component)
    for attribute, field in Settings.model_fields.items():
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, Component)):
            continue
        yield f"## [{attribute}]\n"
        yield f"{(field.annotation.__doc__ or '').strip()}\n"
        if attribute == "kafka":
            yield "Any property of librdkafka as `kafka.<its name>`; `kafka.bootstrap.servers` is required."
            yield from _refused({f"kafka.{name}": reason for name, reason in OWNED_PROPERTIES.items()})
        elif attribute == "spark":
            yield "Any property of Spark under its own name, as in `spark.executor.memory`; not from the environment."
            yield from _refused(OWNED_SPARK_PROPERTIES)
        else:
            yield from _table(known for known in KNOWN.values() if known.component == attribute)
    yield "## Settings of Kafka's without effect\n"
    yield "They are accepted with a warning.\n"
    yield "| Name | Why |"
    yield "| --- | --- |"
    for name, reason in MEANINGLESS.items():
        yield f"| `{name}` | {reason} |"
    yield ""


def _table(settings: Iterator[Known]) -> Iterator[str]:
    yield "| Name | Default | Takes | What it does |"
    yield "| --- | --- | --- | --- |"
    for known in settings:
        yield f"| `{known.name}` | {_default(known)} | {expected(known.field)} | {known.field.description} |"
    yield ""


def _default(known: Known) -> str:
    value = known.field.default
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value not in ("", ()) else "none"


def _refused(properties: Mapping[str, str]) -> Iterator[str]:
    yield "These are fixed by how the log works, and refused:\n"
    yield "| Name | Because |"
    yield "| --- | --- |"
    for name, reason in properties.items():
        yield f"| `{name}` | {reason} |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(render_reference())
