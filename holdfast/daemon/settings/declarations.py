"""How a setting is declared: its default, what it does, its bounds, and the names it may be given under."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

from holdfast.hidden_texts import REDACTED, URL_PASSWORD
from holdfast.kafka.addresses import parse_address

MIB = 1024 * 1024
MINUTE_MS = 60_000

#: The longest time any setting may name: a day. A bound that is never reached is no bound.
_DAY_MS = 24 * 60 * MINUTE_MS

#: Endings and parts of names of client properties whose values are never shown.
_SECRET_PARTS = (
    "password",
    "passphrase",
    "secret",
    "token",
    "jaas",
    "key.pem",
    "account.key",
    "sasl.oauthbearer.config",
    "assertion",
)


def is_secret(name: str) -> bool:
    """Tell whether the value of a client property must not be shown."""
    lower = name.lower()  # as in Spark's `spark.ssl.keyPassword`
    return any(part in lower for part in _SECRET_PARTS)


def redact(name: str, value: Any) -> Any:  # noqa: ANN401
    """Return the value of a setting or a client property as it may be shown."""
    if is_secret(name):
        return REDACTED if value else value
    return URL_PASSWORD.sub(REDACTED, value) if isinstance(value, str) else value


def setting(
    default: Any,  # noqa: ANN401
    description: str,
    *,
    kafka: str | None = None,
    why_node_only: str | None = None,
    **bounds: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Declare a setting.

    Args:
        default: its value where no source has one.
        description: one sentence or more for its page.
        kafka: the name it has in Kafka.
        why_node_only: the reason for which no value can hold for all nodes, as a clause; those of the host are in `cluster_wide`.
        bounds: those of pydantic (ge, le, gt, lt, min_length).
    """
    extra: dict[str, Any] = {"kafka": kafka, "why_node_only": why_node_only}
    return Field(default, description=description, json_schema_extra=extra, **bounds)


def declared_text(field: FieldInfo, name: str) -> str:
    """Return a text that `setting` was given by this name; empty if it was given none."""
    extra = field.json_schema_extra
    return str(extra.get(name) or "") if isinstance(extra, dict) else ""


def time_ms(default: int, description: str, *, kafka: str | None = None, minimum: int = 1) -> Any:  # noqa: ANN401
    """Declare a time in ms, from `minimum` to a day."""
    return setting(default, description, kafka=kafka, ge=minimum, le=_DAY_MS)


def count(default: int, description: str, *, kafka: str | None = None, most: int = 2**31 - 1) -> Any:  # noqa: ANN401
    """Declare a number of things or bytes, from 1 to `most`."""
    return setting(default, description, kafka=kafka, ge=1, le=most)


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]


def _check_address(text: str) -> str:
    if text:
        parse_address(text)
    return text


Address = Annotated[str, AfterValidator(_check_address)]


class Component(BaseModel):
    """The settings of one component."""

    #: Where it is set, the name of each setting is this and its attribute, with dots: `compaction.checkpoint.dir`.
    name_prefix: ClassVar[str] = ""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def find_conflict(self, settings: Any) -> str:  # noqa: ANN401 - the `Settings` that it is part of
        """Return why it does not go with the settings of other components; empty if it does."""
        return ""


class Properties(Component):
    """What is passed on to a library under the library's own names."""

    #: Whether the beginning of its settings, `name_prefix`, is part of the library's names.
    keeps_prefix: ClassVar[bool] = False

    properties: Mapping[str, str] = Field(default_factory=dict, repr=False)

    def redacted(self) -> dict[str, str]:
        """Return the properties fit to be shown: secrets are hidden by their name."""
        return {name: redact(name, value) for name, value in self.properties.items()}
