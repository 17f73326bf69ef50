"""The page `docs/configuration.md`, written from the settings; `python -m tools.settings_reference` prints it."""

import sys
from collections.abc import Iterator, Mapping

from holdfast.daemon.settings.catalogue import Known, catalogue_of
from holdfast.daemon.settings.cluster_wide import TAKEN_OVER_WHILE_RUNNING, why_not_cluster_wide
from holdfast.daemon.settings.components.snapshots import OWNED_SPARK_PROPERTIES
from holdfast.daemon.settings.declarations import Component
from holdfast.daemon.settings.file_env_flags import MEANINGLESS, expected
from holdfast.daemon.settings.models import OWNED_PROPERTIES
from holdfast.tenants import TABLES

_HEAD = """\
# Configuration

This page is written by `python -m tools.settings_reference` from the settings that `holdfast/node_settings.py` names.

A setting has one name everywhere. Sources are merged once, and the later wins:

1. the defaults below;
2. a TOML file: `--config FILE`, or the environment variable `HOLDFAST_CONFIG`;
3. the environment: `HOLDFAST_` and the name in capitals, with `_` in place of dots;
4. the [config topic](#settings-of-all-nodes): `holdfast config set NAME=VALUE`, for all nodes;
5. flags: `--set NAME=VALUE`.

If a value loses against a different one of a later source, the event `setting_overruled` says so.

```toml
node_id = 1

[listener]                       # tables only group; their names may be left out
listen = "0.0.0.0:9492"
advertised_listener = "coordinator.example:9492"
insecure = true                  # the same as listener.insecure: without TLS, and reached by others

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

## Settings of all nodes

Settings that must hold for all nodes of a state topic are written once, to the config topic.
It has one partition and `cleanup.policy=compact`.
`holdfast config set loads_max=16` checks the value as a node would, makes the topic if it is missing, and writes the record.
If there is no state topic yet, it needs `--before-the-first-node`, because the topic's name may be misspelt.
`holdfast config unset loads_max` writes a tombstone.
`holdfast config list --address HOST:PORT` shows each value, and whether that node uses it.

The order is Kafka's: a dynamic default of the cluster wins over a broker's `server.properties`.
So the config topic wins over file and environment; otherwise a forgotten line in one image would make nodes differ.
A flag wins over it, as a dynamic value of one broker wins over the cluster's: it makes one node a deliberate exception.

A node that starts reads the topic to its end before it serves anything, for `config.read.timeout.ms` at most.
Then it follows the topic, and reads all sources again after each change.
It takes over {taken_over} at once, and everything else when it starts again.
The event `settings_reloaded` says which settings are in effect, and which need a restart.
A Spark job that a node runs gets the settings of that node; `holdfast compact` by itself reads no config topic.

No value of the topic prevents a node from starting:

- a value that is wrong by itself is left out, and the others hold;
- if several values contradict each other or the node's own settings, all values of the topic are left out;
- a name that this version does not know, such as one of a newer version, stays in the topic, and this node leaves it out.

Each of them is in the event `cluster_setting_refused` with its reason, and in `holdfast config list`.
Two commands at the same moment are checked against the same values, and the later record holds.

Each node has its own values of the following settings.
`holdfast config set` refuses them, and also all properties of Kafka's client and of Spark, and all secrets:

| Name | Why |
| --- | --- |
{node_only}
"""


def render_reference() -> str:
    """Return the whole page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    known_settings = catalogue_of(TABLES.settings).known
    node_only = [
        f"| `{name}` | {why} |" for name in known_settings if (why := why_not_cluster_wide(name, known_settings))
    ]
    taken_over = " and ".join(f"`{name}`" for name in sorted(TAKEN_OVER_WHILE_RUNNING))
    yield _HEAD.replace("{node_only}", "\n".join(node_only)).replace("{taken_over}", taken_over)
    yield "## The node\n"
    yield from _table(known for known in known_settings.values() if not known.component)
    for attribute, field in TABLES.settings.model_fields.items():
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
            yield from _table(known for known in known_settings.values() if known.component == attribute)
    yield "## Settings of Kafka's without effect\n"
    yield "They are accepted with a warning.\n"
    yield "| Name | Why |"
    yield "| --- | --- |"
    for name, reason in MEANINGLESS.items():
        yield f"| `{name}` | {reason} |"
    yield ""


def _table(settings: Iterator[Known]) -> Iterator[str]:
    yield "| Name | Default | Takes | Meaning |"
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
    yield "The way the log works fixes the following properties, so they are refused:\n"
    yield "| Name | Because |"
    yield "| --- | --- |"
    for name, reason in properties.items():
        yield f"| `{name}` | {reason} |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(render_reference())
