"""The operations of a service: a class for each, from which everything else follows.

A class has all that is to be known of its operation: its `kind`, its parameters (the fields, with types, limits and
texts), what it does (the docstring), the `role` that it needs, the errors that refuse it (`refusals`), and whether it
can be cancelled. From it follow

- the HTTP request: `method`, `target` and `body`; `api/operation_routes.py` makes the route, and OpenAPI shows it,
- the request that one process sends to another, which owns the partition,
- the verb of the command line: `verb`, an option for each parameter, the docstring as its help; the command sends
  `command.method` to `command.target` with `command.body`. Savepoints and `redrive` have commands of their own.

To add an operation, add its class here, list it in `COMMANDS`, and say who carries it out: an operation on partitions
has its `begin` below, `ServiceControl.perform` does all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self
from urllib.parse import quote

import msgspec
from msgspec import Meta

from snapreplay.errors import PartitionNotLive, RetryableError, UnknownPartition, UsageError
from snapreplay.service.clock import wall_ms
from snapreplay.service.control.vocabulary import Count, Time, one_of, said
from snapreplay.snapshots.format.records import Paused

if TYPE_CHECKING:  # it carries out what is described here
    from snapreplay.service.partition.runner import PartitionRunner


class Role(IntEnum):
    """The roles of those who ask over HTTP; each may do what those before it may, too."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


class OperationState(StrEnum):
    """State of an operation or of one of its parts. Only parts can be SKIPPED: there was nothing to do."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"
    FAILED = "failed"
    CANCELLED = "cancelled"


OnDone = Callable[[OperationState, str | None, str], bool | None]
"""Called with (state, snapshot id, detail) when a part of an operation has begun or ended. True: it was cancelled
before."""


class NotFailed(UsageError):
    """There is nothing to retry, because the partition is not FAILED."""

    def __init__(self, partition: int, phase: str) -> None:
        super().__init__(f"partition {partition} is {phase}: there is nothing to retry")
        self.partition = partition
        self.phase = phase


class Busy(RetryableError):
    """An operation of this kind is already running on that partition."""

    def __init__(self, partition: int, operation_id: str | None, kind: str = "snapshot") -> None:
        super().__init__(f"{BY_KIND[kind].noun} of partition {partition} is already running")
        self.partition = partition
        self.operation_id = operation_id


class NoSuccessor(RetryableError):
    """The drain is refused, because no other process could take the partitions.

    Safe: The process keeps its partitions.
    """

    def __init__(self, why: str) -> None:
        super().__init__(
            f"no other process would take the partitions: {why}", hint="start another process of the app first"
        )
        self.why = why


class NotCancellable(UsageError):
    """The operation has ended, or can no longer be stopped."""

    def __init__(self, operation_id: str, why: str) -> None:
        super().__init__(f"operation {operation_id} cannot be cancelled: {why}")
        self.operation_id = operation_id
        self.why = why


INTEGER_MAX = 2**53 - 1
"""JSON has no larger integer that every client reads exactly (RFC 8259); no log is that long."""
PARTITION_MAX = 2**31 - 1  # Kafka's partition numbers are int32
PartitionNumber = Annotated[int, Meta(ge=0, le=PARTITION_MAX, description="Number of a state partition.")]
Reason = Annotated[str, Meta(max_length=500, description="Kept with the operation.")]
SavepointName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]+$", max_length=200, description="Of the savepoint.")]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an operation. `by`: the name of the requester; empty: not known."""

    kind: ClassVar[str] = ""
    """The name of the operation, in its result and at the end of its URL."""
    verb: ClassVar[str]
    """Its name at the command line, and with `_` in Python."""
    noun: ClassVar[str]
    """Its name in a sentence."""
    method: ClassVar[str] = "POST"
    path: ClassVar[str]
    """Of the HTTP request, with the parameters that are part of it."""
    role: ClassVar[Role] = Role.OPERATOR
    refusals: ClassVar[tuple[type[Exception], ...]]
    """Raised before anything is begun."""
    is_cancellable: ClassVar[bool] = False
    """Whether what has not begun of it can be cancelled."""
    too_late: ClassVar[str] = "it ends by itself"
    """Why what has begun of it cannot be cancelled."""

    by: str = ""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.verb = cls.__dict__.get("verb", cls.kind)
        cls.noun = cls.__dict__.get("noun", f"a {cls.kind}")
        cls.path = cls.__dict__.get("path", cls.path_of(cls.kind))

    @classmethod
    def path_of(cls, kind: str) -> str:
        """Return the path of an operation that has none of its own."""
        return f"/{kind}"

    @classmethod
    def parameters(cls) -> list[msgspec.structs.FieldInfo]:
        """List the parameters of the body: those that are not part of the path."""
        return [
            each for each in msgspec.structs.fields(cls) if each.name != "by" and f"{{{each.name}}}" not in cls.path
        ]

    @property
    def target(self) -> str:
        return self.path.format_map({name: quote(str(getattr(self, name)), safe="") for name in self.__struct_fields__})

    @property
    def body(self) -> dict[str, Any] | None:
        found = {each.name: getattr(self, each.name) for each in self.parameters()}
        return {name: value for name, value in found.items() if value is not None} if found else None

    @property
    def about(self) -> str:
        """The text that is kept with the operation."""
        return getattr(self, "reason", "")


class PartitionsCommand(Command, frozen=True, kw_only=True):
    """A request for an operation on partitions, each of which its owner carries out."""

    refusals: ClassVar[tuple[type[Exception], ...]] = (UnknownPartition, PartitionNotLive, Busy)

    @property
    def numbers(self) -> Sequence[int] | None:
        """The partitions; None: all that are LIVE."""
        raise NotImplementedError

    def only(self, _numbers: Sequence[int] | None) -> Self:
        """Return the part of the request for these of its partitions."""
        return self

    def begin(self, runner: PartitionRunner, done: OnDone) -> bool:
        """Begin, in the loop of the runners; `done` is called with what becomes of it. False: the partition is not
        LIVE any more."""
        raise NotImplementedError


class PartitionCommand(PartitionsCommand, frozen=True):
    """A request for an operation on one partition."""

    partition: PartitionNumber

    @classmethod
    def path_of(cls, kind: str) -> str:
        return f"/api/v1/partitions/{{partition}}/{kind}"

    @property
    def numbers(self) -> Sequence[int]:
        return (self.partition,)


class TriggerSnapshot(PartitionsCommand, frozen=True):
    """Write full snapshots now.

    One for each named partition, or for all live ones. Processing continues. If a partition is refused, no snapshot
    is started. If a process refuses after others have begun, the answer says which have begun."""

    kind = "snapshot"
    verb = "trigger-snapshot"
    path = "/trigger-snapshot"
    is_cancellable = True
    too_late = "the snapshots are being written already"

    partitions: (
        Annotated[
            Sequence[PartitionNumber],
            Meta(min_length=1, max_length=10_000, description="If left out: all live partitions."),
        ]
        | None
    ) = None
    reason: Reason = ""

    @property
    def numbers(self) -> Sequence[int] | None:
        return self.partitions

    def only(self, numbers: Sequence[int] | None) -> Self:
        return msgspec.structs.replace(self, partitions=numbers)

    def begin(self, runner: PartitionRunner, done: OnDone) -> bool:
        return runner.request_snapshot("trigger", done)


class AdoptSnapshot(PartitionCommand, frozen=True):
    """Use a snapshot that a job proposes.

    The owner reads the snapshot and hashes every entry, while processing continues. The operation succeeds when an
    increment points to the snapshot. It fails with the reason if the owner rejects the proposal."""

    kind = "adopt"
    noun = "an adoption"
    role = Role.ADMIN
    too_late = "the owner is checking the snapshot; if it rejects it, nothing changes"

    manifest_offset: Annotated[
        int, Meta(ge=0, le=INTEGER_MAX, description="Offset of its manifest in the snapshots topic.", examples=[1042])
    ]

    @property
    def about(self) -> str:
        return f"manifest at offset {self.manifest_offset}"

    def begin(self, runner: PartitionRunner, done: OnDone) -> bool:
        return runner.request_adoption(self.manifest_offset, done)


class RetryPartition(PartitionCommand, frozen=True):
    """Let a failed partition recover again.

    Use it once the cause is repaired or accepted. The topics are checked again, then the partition recovers. The other
    partitions of its process continue. The operation succeeds when the partition is live and has committed a batch, or
    found nothing to commit for a second; it fails when the partition fails again."""

    kind = "retry"
    refusals = (UnknownPartition, PartitionNotLive, NotFailed, Busy)
    is_cancellable = True
    too_late = "the partitions are recovering already"


class PausePartition(PartitionCommand, frozen=True):
    """Stop processing a partition until it is resumed.

    The current batch is committed. The partition stays live, owned and in memory. The pause is in the log: it survives
    restarts and holds for each later owner. The operation succeeds when the pause is committed."""

    kind = "pause"
    too_late = "it ends by itself, with the next commit; `snapreplay resume` undoes it"

    reason: Reason = ""

    def begin(self, runner: PartitionRunner, done: OnDone) -> bool:
        return runner.request_pause(Paused(wall_ms(), self.reason), done)


class ResumePartition(PartitionCommand, frozen=True):
    """Process a paused partition again.

    Processing resumes with the next record. The operation succeeds when this is committed."""

    kind = "resume"
    too_late = "it ends by itself, with the next commit; `snapreplay pause` undoes it"

    def begin(self, runner: PartitionRunner, done: OnDone) -> bool:
        return runner.request_pause(None, done)


class DrillPartition(PartitionCommand, frozen=True):
    """Restore a live partition into a copy that is discarded.

    The owner restores it from the log while processing continues. The operation succeeds when the restored state has
    the digest of the last batch. It fails if a recovery would fail or fall back, or if the drill is abandoned. The
    `drill` of the partition has the seconds."""

    kind = "drill"
    is_cancellable = True

    def begin(self, runner: PartitionRunner, done: OnDone) -> bool:
        return runner.request_drill(done)


class ProcessCommand(Command, frozen=True, kw_only=True):
    """A request for an operation of one process. `process_id` empty: of the process that is asked."""

    process_id: Annotated[str, Meta(max_length=200, description="GET /api/v1/processes lists them.")] = ""

    @classmethod
    def path_of(cls, kind: str) -> str:
        return f"/api/v1/processes/{{process_id}}/{kind}"


class DrainProcess(ProcessCommand, frozen=True, kw_only=True):
    """Hand the partitions of a process over to the others, before maintenance.

    Processes with warm copies take over first. The process stays up and takes no partitions or copies until it is
    undrained or restarted, unless no other process is left. The operation succeeds when the process has no partitions
    left."""

    kind = "drain"
    refusals = (NoSuccessor, Busy)
    is_cancellable = True

    reason: Reason = ""


class UndrainProcess(ProcessCommand, frozen=True):
    """Let a drained process take partitions again.

    It takes them when the group assigns them. A drain that has not ended is cancelled."""

    kind = "undrain"
    noun = "an undrain"
    refusals = (NoSuccessor,)


class SavepointCommand(Command, frozen=True):
    """A request about a savepoint of the app. Any process can carry it out, whether or not it owns the partitions."""

    refusals = (Busy,)

    name: SavepointName

    @property
    def about(self) -> str:
        return self.name


class CreateSavepoint(SavepointCommand, frozen=True):
    """Keep the state of all partitions under a name.

    It is the state after the last committed batch of each. Processing continues meanwhile. The operation succeeds when
    the savepoint is read back and proven; it fails with the reason if the name is taken, or if a state cannot be
    restored."""

    kind = "savepoint"
    verb = "savepoint create"
    path = "/api/v1/savepoints"
    is_cancellable = True
    too_late = "the partitions are kept already"

    reason: Reason = ""


class DropSavepoint(SavepointCommand, frozen=True):
    """Delete a savepoint for good.

    Its topics are deleted, complete or not. Apps that have begun with it keep their state. The operation fails if there
    is no such savepoint."""

    kind = "savepoint-drop"
    verb = "savepoint drop"
    noun = "the drop of a savepoint"
    method = "DELETE"
    path = "/api/v1/savepoints/{name}"
    role = Role.ADMIN
    too_late = "its topics are being deleted"


class RedriveDeadLetters(Command, frozen=True):
    """Send the dead letters back to their inputs.

    Each record that was not sent back before is sent once, however often a redrive is interrupted. The process that is
    asked carries it out. Deploy a fixed handler first: without one, the same records fail again."""

    kind = "redrive"
    path = "/api/v1/dead-letters/redrive"
    refusals = (Busy,)

    reason: Reason = ""


class CancelOperation(Command, frozen=True):
    """Cancel the parts of an operation that have not begun.

    These can be a waiting snapshot or retry, a drill, a drain or a savepoint. Parts that have begun to change
    something are completed. Ask any process."""

    verb = "cancel"
    method = "DELETE"
    path = "/api/v1/operations/{operation_id}"
    refusals = (NotCancellable,)

    operation_id: Annotated[str, Meta(max_length=37 * 128, description="It may join those of several processes.")]


COMMANDS: tuple[type[Command], ...] = (
    TriggerSnapshot,
    AdoptSnapshot,
    RetryPartition,
    PausePartition,
    ResumePartition,
    DrillPartition,
    DrainProcess,
    UndrainProcess,
    CreateSavepoint,
    DropSavepoint,
    RedriveDeadLetters,
    CancelOperation,
)
BY_KIND: dict[str, type[Command]] = {each.kind: each for each in COMMANDS if each.kind}


class OperationPart(msgspec.Struct, frozen=True):
    """One partition's share of an operation."""

    partition: Count
    state: Annotated[str, one_of(*OperationState)]
    snapshot_id: str | None = None
    detail: str = ""


class Operation(msgspec.Struct, frozen=True):
    """An asynchronous request and its result."""

    id: Annotated[str, said("Sorts by time of creation.")]
    kind: Annotated[str, one_of(*BY_KIND)]
    state: Annotated[str, one_of("running", "succeeded", "failed", "cancelled")]
    reason: str
    parts: tuple[OperationPart, ...]
    created_at: Time
    finished_at: Time | None = None
