"""A load that makes no progress, and what its line says."""

from holdfast.runtime.effects import Note
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.load import Load


def stalled(partition: Partition) -> dict[str, object]:
    """Return the fields of the line that a load writes when it has stalled for long enough."""
    load = partition.phase
    assert isinstance(load, Load)
    note = load.tick(partition.reading.load_began_ms + partition.tenancy.config.load_stall_ms)
    assert isinstance(note, Note)
    assert note.event == "load_stalled"
    return note.fields
