"""One document with all that a process says of itself, and one interface for what it may be asked to do.

HTTP knows nothing else of a service. So it may live in another process: `wire.py` carries documents one way and
commands the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from snapreplay.service.clock import boot_seconds
from snapreplay.service.control.protocol import Check, Control, Operation, ServiceFacts, Silent
from snapreplay.service.control.status import PartitionStatus, SnapshotStatus


class StatusDocument(msgspec.Struct, frozen=True, tag="status"):
    """The report of a process on itself at one moment. The fields are `Control`'s answers."""

    facts: ServiceFacts
    partitions: tuple[PartitionStatus, ...]
    snapshots: tuple[SnapshotStatus, ...]
    operations: tuple[Operation, ...]
    live_checks: tuple[Check, ...]
    ready_checks: tuple[Check, ...]
    made_at: float  # boot seconds, which all processes of a machine share

    def operation(self, operation_id: str) -> Operation | None:
        """Return the operation; None when unknown or evicted."""
        return next((each for each in self.operations if each.id == operation_id), None)


class TriggerSnapshot(msgspec.Struct, frozen=True, tag="snapshot"):
    """A request for `Control.trigger_snapshot`."""

    partitions: tuple[int, ...] | None
    reason: str


class Adopt(msgspec.Struct, frozen=True, tag="adopt"):
    """A request for `Control.adopt`."""

    partition: int
    manifest_offset: int


class Retry(msgspec.Struct, frozen=True, tag="retry"):
    """A request for `Control.retry`."""

    partition: int


Command = TriggerSnapshot | Adopt | Retry

SILENT_SECONDS = 5.0
"""A status that is older is not shown any more: the process is frozen, or has no processor."""


class Family(msgspec.Struct, frozen=True):
    """A metric with its samples: name, labels, value."""

    name: str
    help: str
    kind: str
    samples: tuple[tuple[str, dict[str, str], float], ...]


class Look(NamedTuple):
    """The knowledge of a process. `age_seconds` is how long it has been silent: about 0 as long as it answers."""

    document: StatusDocument | None  # None: it has not answered yet
    age_seconds: float

    @property
    def fresh(self) -> StatusDocument:
        """The document, if the process answers.
        Raises:
            Silent: the process does not answer.
        """
        if self.document is None or self.age_seconds > SILENT_SECONDS:
            raise Silent(self.age_seconds)
        return self.document


class StatusSource(Protocol):
    """A service as HTTP's handlers ask it, in their own loop."""

    async def look(self) -> Look:
        """Return the process as it is now, or as it was when it fell silent."""

    async def counted(self) -> Sequence[Family]:
        """Return what happened in the process, counted. At most a second old.

        Raises:
            Silent: the process does not answer.
        """

    async def perform(self, command: Command) -> Operation:
        """Carry out a command.

        Raises:
            UnknownPartition, PartitionNotLive, NotFailed, Busy: nothing was started.
            Silent: the process does not answer. Whether the command was carried out is not known.
            TooManyCommands: others are waiting already; nothing was started.
        """


def document_of(control: Control) -> StatusDocument:
    """Make the document; may be called from any thread."""
    return StatusDocument(
        facts=control.facts(),
        partitions=tuple(control.partitions()),
        snapshots=tuple(control.snapshots()),
        operations=tuple(control.operations()),
        live_checks=tuple(control.live_checks()),
        ready_checks=tuple(control.ready_checks()),
        made_at=boot_seconds(),
    )


def performed(control: Control, command: Command) -> Operation:
    """Perform the command; may be called from any thread.

    Raises:
        UnknownPartition, PartitionNotLive, NotFailed, Busy: nothing was started.
    """
    match command:
        case TriggerSnapshot(partitions, reason):
            return control.trigger_snapshot(partitions, reason)
        case Adopt(partition, manifest_offset):
            return control.adopt(partition, manifest_offset)
        case Retry(partition):
            return control.retry(partition)
