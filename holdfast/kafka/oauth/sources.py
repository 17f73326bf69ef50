"""Where tokens come from, as librdkafka's properties say it: an OpenID provider's token endpoint, or a file that somebody else writes.

A file is named as Kafka's own clients name it, by a `file:` address in place of the endpoint's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from holdfast.kafka.errors import PropertyRefused

MECHANISM: Final = "OAUTHBEARER"
_PREFIX: Final = "sasl.oauthbearer."
_ENDPOINT: Final = f"{_PREFIX}token.endpoint.url"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEndpoint:
    """A client's id and secret, for which the endpoint gives tokens."""

    #: `https:`, or `http:` where that is trusted.
    url: str
    client_id: str
    client_secret: str = field(repr=False)
    #: Empty: the provider decides.
    scope: str
    #: An authority's certificates, for the endpoint alone; with neither, those of this machine.
    authority_file: str | None
    authority_pem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFile:
    """A file whose token is replaced before it is over, as Kubernetes does with that of a service account."""

    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """Who we are, by a token."""

    source: TokenEndpoint | TokenFile
    #: Shown to the broker beside the token (KIP-342).
    extensions: Mapping[str, str]


def parse_bearer(properties: Mapping[str, str]) -> Bearer:
    """Return what the properties say about tokens.

    Raises:
        PropertyRefused: one is missing, or a value is wrong.
    """
    method = properties.get(f"{_PREFIX}method", "default")
    if method != "oidc":
        raise PropertyRefused(f"kafka.{_PREFIX}method is {method!r}; it must be oidc.")
    extensions = _parse_extensions(properties.get(f"{_PREFIX}extensions", ""))
    return Bearer(source=_parse_source(properties), extensions=extensions)


def _parse_source(properties: Mapping[str, str]) -> TokenEndpoint | TokenFile:
    url = properties.get(_ENDPOINT, "")
    try:
        parts = urlsplit(url)
        is_endpoint = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise _wrong_url(url) from None
    if parts.scheme == "file" and parts.path:
        return TokenFile(path=Path(unquote(parts.path)))
    if not is_endpoint:
        raise _wrong_url(url)
    names = [f"{_PREFIX}client.id", f"{_PREFIX}client.secret"]
    if absent := [name for name in names if name not in properties]:
        raise PropertyRefused(f"A token endpoint needs kafka.{' and kafka.'.join(absent)}.")
    client_id, client_secret = (properties[name] for name in names)
    return TokenEndpoint(
        url=url,
        client_id=client_id,
        client_secret=client_secret,
        scope=properties.get(f"{_PREFIX}scope", ""),
        authority_file=properties.get("https.ca.location"),
        authority_pem=properties.get("https.ca.pem"),
    )


def _wrong_url(url: str) -> PropertyRefused:
    right = "https://…, or file:///… for a file that holds a token"
    return PropertyRefused(f"kafka.{_ENDPOINT} is {url!r}; it must be {right}.")


def _parse_extensions(text: str) -> dict[str, str]:
    pairs = [piece.partition("=") for piece in filter(None, text.split(","))]
    if not all(name.isalpha() and value for name, _, value in pairs):
        raise PropertyRefused(f"kafka.{_PREFIX}extensions is {text!r}; it must be name=value,name=value.")
    return {name: value for name, _, value in pairs}
