"""What can be read over HTTP of what the command line tool shows: each path is an admin command that changes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

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


QUERIES: Final[Mapping[str, Query]] = {
    query.command: query
    for query in (
        Query("status", "Whether the node is ready, why if it is not, and what it serves.", "object"),
        Query(
            "partitions", "Every log partition: owner, state, offsets, and what keeps it from being pruned.", "array"
        ),
        Query("members", "The nodes that divide the log, and what each has.", "array"),
        Query("readers", "Who reads the log, and how far behind each is.", "array"),
        Query("metrics", "Every number by its name; of all workers of the host, if the node is one.", "object"),
        Query("settings", "Every setting as it is, secrets hidden.", "object"),
        Query("config", "The settings of all nodes, and what this node makes of each.", "object"),
        Query(
            "share-partitions",
            "A page of share partitions as the log has committed them, in the order of group, topic id and partition.",
            "object",
            (
                Parameter("group", "string", "Of this group alone."),
                Parameter("topic_id", "string", "Of this topic alone."),
                Parameter("after", "json", "The `next` of the page before."),
                Parameter("limit", "integer", "So many at most; share_partitions_per_page_max is the most."),
            ),
        ),
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
