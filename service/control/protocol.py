"""The words and interfaces between a running service and its HTTP: one document with all that a process says of
itself, and the reads and commands that it carries out (`operations.py` has the commands).

HTTP knows nothing else of a service.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Annotated, NamedTuple, Protocol, TypeVar

import msgspec

from snapreplay.errors import RetryableError
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.config.settings import SettingShown
from snapreplay.service.control.kafka_reads import (
    DeadLetterList,
    KeyHistory,
    PartitionHistory,
    ReadKeyHistory,
    SavepointList,
)
from snapreplay.service.control.operations import Command, Operation
from snapreplay.service.control.state_reads import StateAnswer, StateRead
from snapreplay.service.control.status import PartitionStatus, SnapshotStatus, StandbyStatus
from snapreplay.service.control.vocabulary import Count, Time, one_of, said
from snapreplay.service.core.assignment import Copies
from snapreplay.service.core.peers import Peer
from snapreplay.service.core.phase import Phase

T = TypeVar("T")


class Drain(msgspec.Struct, frozen=True):
    """The drain of a process: it gives its partitions away, and takes none while another process can."""

    state: Annotated[str, one_of("draining", "drained"), said("`drained`: it has no partition.")]
    since: Time
    by: Annotated[str, said("Who requested it.", examples=["ada"])]
    reason: str = ""


class TopologyInput(msgspec.Struct, frozen=True):
    """An input topic, or a pattern of topics, and the function that handles its records."""

    topic: str
    handler: str
    is_internal: Annotated[bool, said("Whether the app writes it, too.")] = False


class Topology(msgspec.Struct, frozen=True):
    """The inputs and outputs that the app declares, in the order of its code, and the names of its timers and calls."""

    inputs: tuple[TopologyInput, ...]
    outputs: tuple[str, ...]
    timers: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()


class ServiceFacts(msgspec.Struct, frozen=True):
    """The identity of this process; the cluster's facts are null until it was reached once."""

    app_id: str
    app_version: str
    version: str
    instance_id: str
    process_id: str
    host: str
    started_at: Time
    cluster_id: str | None = None
    partition_count: Count | None = None
    waiting_for: Annotated[str, said("What a new app waits for before it begins, with the command; or empty.")] = ""
    drain: Annotated[Drain | None, said("Null: none was requested.")] = None
    trouble: Annotated[
        str, said("Why this process cannot reach its cluster or join its group, or is throttled; or empty.")
    ] = ""
    topics_not_read: Annotated[
        tuple[str, ...], said("A sentence for each topic that matches an input pattern but is not read.")
    ] = ()
    engine: Annotated[str, said("`compiled` or `pure`; empty: an older version.")] = ""
    topology: Annotated[Topology | None, said("Null: an older version.")] = None


class Check(msgspec.Struct, frozen=True):
    """One line of a probe's answer."""

    name: str
    ok: bool
    detail: str = ""
    since: Annotated[Time | None, said("When it began to fail, where that is known.")] = None


def partition_check(number: int, status: PartitionStatus | None) -> Check:
    """Say whether an assigned partition is LIVE, beyond doubt, and waits for nothing. None: nothing is known of it."""
    if status is None:
        return Check(f"partition {number}", ok=False, detail=Phase.ASSIGNED.value)
    live, doubt = status.phase is Phase.LIVE, status.ownership_doubt
    waits = status.restore.waiting_for if live and status.restore else ""
    why = f": {status.error.message}" if status.error and not live else ""
    detail = f"{status.phase.value}; {doubt or waits}" if doubt or waits else f"{status.phase.value}{why}"
    return Check(f"partition {number}", live and not doubt and not waits, detail)


class LoopBlocked(RetryableError):
    """The event loop of the partitions is blocked, so nothing was started.

    Safe: The handler that blocks the loop continues. Unless SnapreplayNotRecoverable fired for the process, it may be
    killed: the next owner processes the current batch again.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the event loop of the partitions has not turned for {seconds:.0f} s: nothing was started",
            hint="a handler blocks it; ask again when it has returned. Kill the process only if GET /healthz fails",
        )


class TooManyCommands(RetryableError):
    """Refused, because too many commands are waiting already."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} requests wait for the service process already")


class StatusDocument(msgspec.Struct, frozen=True):
    """The report of a process on itself at one moment. Processes of several versions read it: a member that is added
    has a default."""

    facts: ServiceFacts
    partitions: tuple[PartitionStatus, ...] = ()
    """Those that it owns or lately owned, ordered by number; empty before the first assignment."""
    standbys: tuple[StandbyStatus, ...] = ()
    """Its warm copies of others' partitions, ordered by number."""
    snapshots: tuple[SnapshotStatus, ...] = ()
    """The full snapshots that it wrote or used, newest first, at most 500."""
    operations: tuple[Operation, ...] = ()
    """The last 1,000, newest first."""
    live_checks: tuple[Check, ...] = ()
    """Whether it should be killed: does the runners' loop turn? A restore or a FAILED partition is no reason."""
    ready_checks: tuple[Check, ...] = ()
    """Whether it is a member of the group and every assigned partition is LIVE, if there is one."""
    made_at: float = 0.0  # boot seconds, which all processes of a machine share
    settings: tuple[SettingShown, ...] = ()
    """As they are used, by name; secrets are masked."""
    peers: tuple[Peer, ...] = ()
    """The other processes of the group, as of the last assignment; ordered by process id."""
    copies: Copies | None = None
    """Of the partitions that the group gave to it; None: not known."""


class Control(Protocol):
    """A running service for HTTP. `document` and `suspect` may be called from any thread, all
    others from the loop of the runners, in which `Http.serve` was called."""

    def document(self) -> StatusDocument:
        """Return the service as it is now."""

    def perform(self, command: Command) -> Operation:
        """Carry out a command.

        Raises:
            UnknownPartition, PartitionNotLive, NotFailed, Busy, NoSuccessor, NotCancellable: nothing was started.
        """

    def read(self, read: StateRead) -> StateAnswer:
        """Read entries as of the last committed batch.

        Raises:
            UnknownMap, WrongRead, UnknownPartition, NotReadable: it cannot be answered (yet).
        """

    async def history(self, partition: int) -> PartitionHistory:
        """Read the history of a partition from its log.

        Raises:
            UnknownPartition, NotReadable: it cannot be read (now).
        """

    async def key_history(self, read: ReadKeyHistory) -> KeyHistory:
        """Read the history of a key from the log of its partition.

        Raises:
            UnknownMap, WrongRead, UnknownPartition, NotReadable: it cannot be read (now).
        """

    async def savepoints(self) -> SavepointList:
        """Read all savepoints of the app. Raises SavepointsUnread: they cannot be read now."""

    async def dead_letters(self) -> DeadLetterList:
        """Read the newest dead letters of the app. Raises UnknownPartition, NotReadable: they cannot be read (now)."""

    def suspect(self, process_id: str, why: str, silent_seconds: float | None = None) -> None:
        """Hear that a peer seems to be dead, so that standbys here may take over. A mistake costs one takeover.

        `silent_seconds`: for how long it has not answered, which alone does not say that it is dead. None: its
        address refuses connections.
        """


_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound


class Address(NamedTuple):
    """A host and a port; for a bound server the real port, even if 0 was asked for."""

    host: str
    port: int

    @property
    def is_any(self) -> bool:
        """Whether it stands for all addresses of this machine."""
        return self.host in _LOOPBACK

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it; of a bound server."""
        return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback

    @property
    def url(self) -> str:
        """The URL for clients on this machine: an any-address becomes loopback."""
        host = _LOOPBACK.get(self.host, self.host)
        return f"{self.scheme}://[{host}]:{self.port}" if ":" in host else f"{self.scheme}://{host}:{self.port}"

    @property
    def scheme(self) -> str:
        return "http"


class TlsAddress(Address):
    """An address that answers by TLS."""

    @property
    def scheme(self) -> str:
        return "https"


def address(settings: HttpSettings, host: str, port: int) -> Address:
    return (TlsAddress if settings.tls_certificate_file else Address)(host, port)


class Http(Protocol):
    """Serves `Control` over HTTP, without the loop it is called in. `snapreplay.api.server.HttpServer` is one."""

    def bind(self, settings: HttpSettings) -> Address:
        """Take the port, before `serve`; returns the address. Who connects waits until `serve` answers."""

    async def serve(self, control: Control, settings: HttpSettings, path: str) -> Address:
        """Begin to answer; returns the address bound to. `path`: from `share`; empty: the app has the whole port."""

    async def close(self, within_seconds: float, path: str) -> None:
        """End, also if a request is unfinished by then."""


class SharedHttp(Http, Protocol):
    """Serves several apps of a process at one port."""

    def share(self, app_ids: Sequence[str]) -> Sequence[str]:
        """Return the path for each of these apps of a process, which share the port. Requests are answered once all
        have called `serve`."""
