"""The settings of the share gateway."""

import re
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, Self

from pydantic import model_validator

from holdfast.daemon.settings.declarations import MIB, Component, Names, Properties, count, setting
from holdfast.daemon.settings.models import Settings
from holdfast.delivery.group_config import CONFIGS, DEFAULT, ConfigRefused, GroupConfig, with_configs
from holdfast.gateway.topics.patterns import match_topics

#: Stands for every group, as far as it has no configs of its own.
DEFAULT_GROUP: Final = "default"
#: All topics but internal ones and those of the node itself.
ALL_TOPICS: Final = "*"

#: Characters of topic names, and those that stand for others (`topics.patterns`).
_PATTERN: Final = re.compile(r"[a-zA-Z0-9._*?-]{1,249}")
_PATTERNS_MAX: Final = 1_000


class GatewaySettings(Component):
    """The share gateway, by which stock share consumers take records from the cluster that holds the log."""

    name_prefix: ClassVar[str] = "gateway."

    topics: Names = setting(
        (),
        "Topics whose records share consumers may take through this node, by name; `*` and `?` stand for any characters, and every other "
        "character for itself. Internal topics and those of the node itself are never among them. The same on all nodes. Empty: this "
        "node is no gateway.",
        why_node_only="a node tells clients what it serves before it reads the config topic",
        max_length=_PATTERNS_MAX,
    )
    fetch_buffer_bytes: int = setting(
        256 * MIB,
        "Memory for records that the node holds, of all groups: read ahead, or on their way to consumers. A record batch larger than a "
        "sixteenth of it comes whole all the same. A quarter of the node's memory is a good value.",
        ge=16 * MIB,
        le=1 << 40,
    )
    share_partitions_max: int = count(
        20_000,
        "Share partitions that consumers may fetch from this node at a time: groups times partitions of their topics.",
        most=1_000_000,
    )
    share_sessions_max: int = count(
        2_000,
        "Members that may fetch from this node at a time, in all groups.",
        kafka="group.share.max.share.sessions",
        most=100_000,
    )
    members_max: int = count(200, "Members that a group may have.", kafka="group.share.max.size", most=1_000)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for pattern in self.topics:
            if not _PATTERN.fullmatch(pattern):
                raise ValueError(
                    f"gateway.topics has the pattern {pattern!r}; a pattern is at most 249 of a-z A-Z 0-9 . _ - and the wildcards * and ?"
                )
        return self

    def find_conflict(self, settings: Settings) -> str:
        """Return why the patterns cannot be used on a node with its topics; empty if they can.

        They must not name a topic of the node. A wildcard leaves those out, but for the state topic only one that stands for all topics:
        any other that matches it was meant to.
        """
        state_topic = settings.log.state_topic
        for pattern in self.topics:
            aims_at_state = pattern != ALL_TOPICS and match_topics((pattern,)).fullmatch(state_topic)
            named = state_topic if aims_at_state else pattern
            if named in settings.own_topics:
                return (
                    f"gateway.topics has the pattern {pattern}, which matches {named}, a topic of the node itself; "
                    "share consumers must not take its records"
                )
        return ""


class GroupSettings(Properties):
    """The configs of share groups by Kafka's names, each after its group; those of `default` hold where a group has no other."""

    name_prefix: ClassVar[str] = "gateway.groups."

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.configs()
        return self

    def configs(self) -> Callable[[str], GroupConfig]:
        """Return what finds the config of a group.

        Raises:
            ValueError: a name is no config of a group, or a value is not allowed.
        """
        changes: dict[str, dict[str, str]] = {}
        for name, text in self.properties.items():
            group, config = split_config(name)
            changes.setdefault(group, {})[config] = text
        default = _with_configs(DEFAULT, DEFAULT_GROUP, changes.pop(DEFAULT_GROUP, {}))
        by_group = {group: _with_configs(default, group, configs) for group, configs in changes.items()}
        return lambda group_id: by_group.get(group_id, default)


def _with_configs(config: GroupConfig, group: str, changes: Mapping[str, str]) -> GroupConfig:
    """Return a config with the changes of a group.

    Raises:
        ValueError: a value is not allowed; the text names the setting.
    """
    try:
        return with_configs(config, changes)
    except ConfigRefused as refused:
        raise ValueError(f"gateway.groups.{group}.{refused}") from None


def split_config(name: str) -> tuple[str, str]:
    """Return the group and the config of `GROUP.CONFIG`; a group may have dots in its name.

    Raises:
        ValueError: it ends with no config, or names no group.
    """
    for config in CONFIGS:
        if name.endswith(f".{config}"):
            return name.removesuffix(f".{config}"), config
    raise ValueError(
        f"gateway.groups.{name} names no config of a group; it is gateway.groups.GROUP.CONFIG, with GROUP {DEFAULT_GROUP} for every group "
        f"where it has no other, and CONFIG one of {', '.join(CONFIGS)}"
    )


#: The components of the gateway's settings, by the names of their tables.
COMPONENTS: Final[Mapping[str, type[Component]]] = {"gateway": GatewaySettings, "gateway_groups": GroupSettings}
