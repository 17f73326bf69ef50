"""The page of a Kafka cluster: what the web side asks, answered from the state topic and the topics of users."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from holdfast.kafka.addresses import format_address
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.page.follower import Follower
from holdfast.page.moment import Moment, Truth
from holdfast.page.moment_page import MomentPage
from holdfast.page.past import History
from holdfast.page.reading import Looks
from holdfast.page.source import BrokerView, ClusterView, PageRefused


class KafkaPage(MomentPage):
    """A `PageSource` of a cluster; `run` works until it is cancelled."""

    def __init__(
        self,
        options: ConnectionOptions,
        topics: Sequence[str],
        *,
        bootstrap: str,
        now_ms: Callable[[], int],
        run_id: str,
        history: History | None = None,
    ) -> None:
        """Connect to nothing yet.

        Args:
            options: how to connect.
            topics: names that the state topic may have; the first one that is there is read.
            bootstrap: the brokers as the user named them.
            now_ms: the time, in ms since 1970.
            run_id: marks the cursors of this run.
            history: of the state topic; None: none is named.
        """
        super().__init__(Looks(options, history=history), now_ms, run_id)
        self._follower = Follower(options, topics, now_ms, run_id)
        self._bootstrap = bootstrap

    async def run(self) -> None:
        """Follow the state topic."""
        await self._follower.run()

    async def moment(self) -> Moment:
        """See `MomentPage`."""
        return await self._follower.moment()

    @property
    def log_topic(self) -> str:
        """See `MomentPage`."""
        return self._follower.topic

    @property
    def log_topic_id(self) -> bytes:
        """See `MomentPage`."""
        view = self._follower.cluster.topics.get(self._follower.topic)
        return b"" if view is None else view.topic_id

    def log_end(self, log_partition: int) -> int | None:
        """See `MomentPage`."""
        fold = self._follower.book.logs.get(log_partition)
        return None if fold is None else fold.next_offset

    def log_reading(self, log_partition: int) -> object:
        """See `MomentPage`."""
        return self._follower.book.logs.get(log_partition)

    def truth(self, log_partition: int, moment: Moment) -> Truth:
        """See `MomentPage`; the log is read up to now, which is later than the moment."""
        fold, truth = self._follower.book.logs[log_partition], self._follower.truths()[log_partition]
        if fold.was_whole or fold.last_ms is None or truth.as_of_ms is None:
            return truth
        return truth._replace(as_of_ms=min(truth.as_of_ms, fold.last_ms))

    async def whole_cluster(self) -> ClusterView:
        """See `MomentPage`."""
        follower = self._follower
        problems = follower.problems()
        try:
            await follower.moment()
        except PageRefused as refusal:
            problems = (refusal.text, *problems)
        return ClusterView(
            as_of_ms=self._now_ms(),
            bootstrap=self._bootstrap,
            cluster_id=follower.cluster.cluster_id,
            state_topic=follower.topic,
            brokers=tuple(
                BrokerView(broker_id, format_address(*address))
                for broker_id, address in follower.cluster.addresses.items()
            ),
            log_partitions=tuple(follower.log_partitions()),
            problems=problems,
        )

    def changed(self) -> AsyncIterator[None]:
        """See `PageSource`."""
        return self._follower.changed()
