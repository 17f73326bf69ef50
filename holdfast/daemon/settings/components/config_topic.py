"""The settings of the config topic, which holds settings of all nodes of one state topic."""

from typing import Final

from holdfast.daemon.settings.declarations import Component, setting, time_ms

_ENDING: Final = "_config"


def config_topic_of(state_topic: str) -> str:
    """Return the name of the config topic that belongs to a state topic."""
    return state_topic + _ENDING


class ConfigTopicSettings(Component):
    """The config topic: settings that hold for all nodes of one state topic, written by `holdfast config`."""

    name_prefix = "config."

    topic: str = setting(
        "",
        "Topic that holds the settings of all nodes. If it exists, nodes take them from it. "
        f"Empty: the name of the state topic with `{_ENDING}` at its end.",
        max_length=249,
        pattern=r"^[a-zA-Z0-9._-]*$",
    )
    read_timeout_ms: int = time_ms(
        5_000,
        "How long a node that starts waits for the end of the config topic; then it goes on with the "
        "settings of its own, and says so.",
        minimum=100,
    )
