"""HTTP paths that show the answer of one command about share state."""

from __future__ import annotations

from typing import Final

from holdfast.daemon.http.queries import Parameter, Query

QUERIES: Final = (
    Query(
        "share-partitions",
        "A page of share partitions as the log has committed them, in the order of group, topic id and partition.",
        "object",
        (
            Parameter("group", "string", "Share partitions of this group alone."),
            Parameter("topic_id", "string", "Share partitions of this topic alone."),
            Parameter("after", "json", "The `next` of the page before."),
            Parameter("limit", "integer", "Rows at most; share_partitions_per_page_max is the most."),
        ),
    ),
)
