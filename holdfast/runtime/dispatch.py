"""The dispatch of effects: to the log, to the finders of restore points and owners, and to the host."""

from collections.abc import Callable
from typing import final

from holdfast.runtime.effects import (
    ContinueLoad,
    DeleteRecords,
    FindRestorePoint,
    PartitionEffect,
    QueryLogStart,
    QueryOwner,
    RestorePointJudged,
    StartReading,
    StateChanged,
    StopReading,
    Superseded,
)
from holdfast.runtime.host import Host
from holdfast.runtime.log_protocol import Log
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.ownership import Owners
from holdfast.runtime.partition.restore_point import RestorePointFinder


@final
class Dispatcher:
    """The dispatcher of the effects of all partitions."""

    def __init__(
        self,
        log: Log,
        host: Host,
        owners: Owners | None,
        restore_points: RestorePointFinder | None,
        continue_load: Callable[[ContinueLoad], None],
    ) -> None:
        self._log = log
        self._host = host
        self._owners = owners
        self._restore_points = restore_points
        self._continue_load = continue_load

    def carry_out(self, effect: PartitionEffect, partition: Partition) -> None:
        """Pass an effect of this partition to the object that carries it out."""
        match effect:
            case QueryLogStart(index, instance):
                self._log.query_log_start(index, instance)
            case QueryOwner(index, instance, owner):
                assert self._owners is not None
                self._owners.query_owner(index, instance, owner)
            case FindRestorePoint(index, instance, log_start):
                assert self._restore_points is not None
                self._restore_points.find_restore_point(index, instance, log_start)
            case RestorePointJudged(index, offset, refusal):
                assert self._restore_points is not None
                self._restore_points.restore_point_judged(index, offset, refusal)
            case StartReading(index, instance, from_offset):
                self._log.start_reading(index, instance, from_offset)
            case StopReading(index):
                self._log.stop_reading(index)
            case ContinueLoad():
                self._continue_load(effect)
            case DeleteRecords(index, before_offset):
                self._log.delete_records(index, before_offset)
            case StateChanged():
                self._host.partition_changed(partition)
            case Superseded(_, winner, offset):
                self._host.superseded(partition, winner, offset)
