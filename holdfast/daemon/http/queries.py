"""What can be read over HTTP of what the command line tool shows: each path is an admin command that changes nothing."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from starlette.types import Receive, Scope, Send

PREFIX: Final = "/api/v1/"


class QueryRefused(Exception):
    """A request that its client can mend; the text says how."""


class Parameter(NamedTuple):
    """A parameter of a query, which is the command's argument of the same name."""

    name: str
    #: What its text is read as.
    sort: Literal["string", "integer", "json"]
    description: str
    is_needed: bool = False


class Query(NamedTuple):
    """A path behind `PREFIX`, which has the name of its command."""

    command: str
    description: str
    #: What its JSON is.
    answer: Literal["object", "array"]
    parameters: tuple[Parameter, ...] = ()


#: Runs a command that changes nothing, and returns its answer.
Ask: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Any]]


class CommandRefused(Exception):
    """A command that an answer needs is refused; the text says why."""

    def __init__(self, error_code: int, text: str) -> None:
        super().__init__(text)
        self.error_code = error_code


class Page(NamedTuple):
    """A path after `PREFIX` that is made of the answers of several commands."""

    #: Its `command` is the path; the last part may be a name in braces.
    query: Query
    #: Makes the answer, of the values of names in the path and of the parameters. It raises CommandRefused and QueryRefused.
    answer: Callable[[Ask, Mapping[str, str], Mapping[str, Any]], Awaitable[dict[str, Any]]]


class Site(Protocol):
    """An application of a tenant, which answers for all paths that the host has no answer for."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of a reader whom the guard of the port admits."""

    def describe(self) -> Mapping[str, Any]:
        """Return its paths after `PREFIX` and their schemas, as OpenAPI has them; empty: it has none."""


#: Returns the site of a node that serves; it is given what runs commands of the node.
MakeSite: TypeAlias = Callable[[Ask], Site]


#: The paths that every node has.
QUERIES: Final[Mapping[str, Query]] = {
    query.command: query
    for query in (
        Query("status", "Whether the node is ready, why if it is not, and what it serves.", "object"),
        Query(
            "partitions", "Every log partition: owner, state, offsets, and what keeps it from being pruned.", "array"
        ),
        Query(
            "hand-overs",
            "The last log partitions that the node took, or another node took from it; the newest first.",
            "array",
        ),
        Query("members", "The nodes that divide the log, and what each has.", "array"),
        Query("readers", "The readers of the log, and how far each of them lags.", "array"),
        Query("metrics", "Every number by its name; of all workers of the host, if the node is one.", "object"),
        Query("settings", "Every setting as it is, secrets hidden.", "object"),
        Query("config", "The settings of all nodes, and what this node makes of each.", "object"),
        Query(
            "resolve-topic",
            "Id and number of partitions of a topic.",
            "object",
            (Parameter("name", "string", "Its name.", is_needed=True),),
        ),
        Query(
            "topic-ends",
            "First and end offsets of partitions of topics, by now.",
            "object",
            (Parameter("topics", "json", "An object of topic ids, each with a list of partitions.", is_needed=True),),
        ),
    )
}


def parse_arguments(query: Query, given: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of a command by the parameters of a request.

    Raises:
        QueryRefused: a parameter is unknown, missing or not of its sort.
    """
    known = {parameter.name: parameter for parameter in query.parameters}
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        names = ", ".join(known) or "none"
        raise QueryRefused(f"There is no parameter {unknown[0][:100]!r}; {query.command} takes {names}.")
    missing = [parameter.name for parameter in query.parameters if parameter.is_needed and parameter.name not in given]
    if missing:
        raise QueryRefused(f"The parameter {missing[0]!r} is needed.")
    return {name: _parse(known[name], text) for name, text in given.items()}


def _parse(parameter: Parameter, text: str) -> object:
    if parameter.sort == "string":
        return text
    try:
        return json.loads(text) if parameter.sort == "json" else int(text)
    except (ValueError, RecursionError):
        kind = "JSON" if parameter.sort == "json" else "a whole number"
        raise QueryRefused(f"The parameter {parameter.name!r} must be {kind}.") from None
