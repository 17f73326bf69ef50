"""The rights of a reader of the page: groups by DESCRIBE, records of a topic by READ, and the cluster by DESCRIBE on it."""

from __future__ import annotations

import asyncio
import shlex
from contextvars import ContextVar
from typing import Final

from holdfast.daemon.access.acl import CLUSTER_NAME, Operation, ResourceType
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.access.rules import Rules
from holdfast.daemon.http.readers import Reader
from holdfast.kafka.addresses import find_host
from holdfast.page.moment import Moment
from holdfast.page.source import PageRefused

#: The reader whose request is answered in this context.
READER: Final[ContextVar[Reader]] = ContextVar("READER")
#: For the audit log.
_CALL: Final = "page"
#: Moments of readers that are kept.
_SEEN_MAX: Final = 16
#: Groups that are looked at before others have their turn: a millisecond or so.
_GROUPS_PER_SLICE: Final = 200


class Rights:
    """The rights of the reader whose request is answered."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        #: Moments by the audiences that see them, and the moment and the rules that they are of.
        self._seen: dict[str, Moment] = {}
        self._seen_of: tuple[Moment, Rules] | None = None

    def forget(self) -> None:
        """Keep no moment."""
        self._seen_of = None
        self._seen.clear()

    def audience(self) -> str:
        """Return a text that is the same for readers who see the same."""
        reader = READER.get()
        return "" if self._authorizer.is_open else f"{find_host(reader.client_address)} {reader.principal}"

    async def see(self, moment: Moment) -> Moment:
        """Return as much of a moment as the reader may see; it is looked through in slices of the loop's time."""
        authorizer, reader = self._authorizer, READER.get()
        if authorizer.is_open:
            return moment
        place = self.audience()
        while True:
            rules = authorizer.rules
            if self._seen_of is None or self._seen_of[0] is not moment or self._seen_of[1] is not rules:
                self._seen_of = moment, rules
                self._seen.clear()
            if (seen := self._seen.get(place)) is not None:
                return seen
            seen = await self._only(reader, moment)
            # Other rules may hold by now, or another reader see a newer moment.
            if authorizer.rules is rules:
                break
        if self._seen_of == (moment, rules):
            if len(self._seen) >= _SEEN_MAX:
                self._seen.clear()
            self._seen[place] = seen
        return seen

    async def _only(self, reader: Reader, moment: Moment) -> Moment:
        shown = set[str]()
        for count, group in enumerate(moment.group_names(), start=1):
            if self._may(reader, Operation.DESCRIBE, ResourceType.GROUP, group):
                shown.add(group)
            if count % _GROUPS_PER_SLICE == 0:
                await asyncio.sleep(0)
        return moment.only(shown, f"{reader.principal} sees those share groups alone that it may DESCRIBE.")

    def check_group(self, group: str) -> None:
        """Refuse a group that the reader may not DESCRIBE, whether there is one of this name or not."""
        self._check(Operation.DESCRIBE, ResourceType.GROUP, group)

    def check_records(self, topic: str) -> None:
        """Refuse records of a topic that the reader may not READ."""
        self._check(Operation.READ, ResourceType.TOPIC, topic)

    def sees_cluster(self) -> bool:
        """Tell whether the reader may DESCRIBE the cluster."""
        return self._may(READER.get(), Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)

    def check_cluster(self) -> None:
        """Refuse a reader who may not DESCRIBE the cluster."""
        self._check(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)

    def _check(self, operation: Operation, resource: ResourceType, name: str) -> None:
        reader = READER.get()
        if self._may(reader, operation, resource, name, is_audited=True):
            return
        named = (
            (f"--{resource.value.lower()}",)
            if resource is ResourceType.CLUSTER
            else (f"--{resource.value.lower()}", name)
        )
        options = ("--allow-principal", reader.principal, "--operation", operation.value, *named)
        raise PageRefused(
            403,
            f"{reader.principal} may not {operation.value} the {resource.value} {name!r}; `holdfast acls add {shlex.join(options)}` "
            "on the host of the node allows it.",
        )

    def _may(
        self, reader: Reader, operation: Operation, resource: ResourceType, name: str, *, is_audited: bool = False
    ) -> bool:
        return self._authorizer.may(reader, _CALL, operation, resource, name, is_audited=is_audited)
