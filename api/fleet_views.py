"""Puts together what all processes of an app say, and who says it, how old it is, whether it can be asked. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import msgspec

from snapreplay.api.peers import Known
from snapreplay.service.control.protocol import Drain, StatusDocument
from snapreplay.service.control.status import PartitionStatus
from snapreplay.service.control.vocabulary import Count, Seconds, Time, one_of, said
from snapreplay.service.core.assignment import Copies
from snapreplay.service.core.liveness import PeerState
from snapreplay.service.core.phase import CopyState, Phase

_HOLDS_NOTHING = (Phase.CLOSED, Phase.FENCED)

ProcessId = Annotated[str | None, said("The process that reported this; null: none.")]
Host = Annotated[str | None, said("Of that process.")]
Age = Annotated[Seconds | None, said("Age of the last report of that process; null: there is none.")]
ProcessState = Annotated[
    str | None, said("Whether it can be reached (`self`, `reachable`); otherwise these are its last known values.")
]


class Scope(StrEnum):
    """The processes that an answer covers."""

    APP = "app"
    LOCAL = "local"


class Process(msgspec.Struct, frozen=True):
    """A process of the app: the process that answers, or another one of its group."""

    process_id: str
    instance_id: str
    host: str
    url: Annotated[str | None, said("URL at which the others reach it; null: not known, or it advertises none.")]
    state: Annotated[
        str,
        one_of(*PeerState),
        said(
            "`dead`: seems dead; `ended`: it said goodbye; `wrong_address`: something else answers there;"
            " `self`: this process."
        ),
    ]
    since: Annotated[Time, said("When this state began, by the clock of the process that answers.")]
    last_error: Annotated[str, said("Why it cannot be reached, or why its status cannot be read; or empty.")]
    is_member: Annotated[bool, said("Whether it is in the group's last assignment that is known here.")]
    partitions: Annotated[tuple[Count, ...], said("Those that it owns, or that are assigned to it; by number.")]
    version: Annotated[str | None, said("Of snapreplay; null: it was never reached.")]
    app_version: str | None
    started_at: Time | None
    age_seconds: Annotated[Seconds | None, said("Age of its last known status; null: none is known.")]
    drain: Annotated[Drain | None, said("Null: none was requested, or it is not known.")] = None
    copies: Annotated[Copies | None, said("Of its partitions; null: not known (yet).")] = None

    @property
    def can_be_asked(self) -> bool:
        return self.state in (PeerState.SELF, PeerState.REACHABLE)


class Says(NamedTuple):
    """A process, and the last thing it said."""

    process: Process
    document: StatusDocument | None


class Held(NamedTuple):
    """A partition: the process that has it, and its status there; None: not known."""

    partition: int
    process: Process | None
    status: PartitionStatus | None

    @property
    def holder(self) -> Process | None:
        """The process that must be asked to do something with it; None: no process has it."""
        has_let_go = self.status is not None and self.status.phase in _HOLDS_NOTHING
        return None if has_let_go else self.process

    @property
    def phase_now(self) -> str:
        """The phase, or `unknown`: nothing is said of it, or by a process that cannot be asked now."""
        is_known = self.status is not None and self.process is not None and self.process.can_be_asked
        return self.status.phase.value if self.status is not None and is_known else "unknown"


def fleet(own: StatusDocument, known: Iterable[Known], boot_seconds: float) -> list[Says]:
    """List the process that answers, then its peers. `boot_seconds` are those of now."""
    addresses = {peer.process_id: peer.url for each in known if each.document for peer in each.document.peers}
    facts = own.facts
    this = Process(
        process_id=facts.process_id,
        instance_id=facts.instance_id,
        host=facts.host,
        url=addresses.get(facts.process_id),
        state=PeerState.SELF,
        since=facts.started_at,
        last_error="",
        is_member=True,
        partitions=_holds(own),
        version=facts.version,
        app_version=facts.app_version,
        started_at=facts.started_at,
        age_seconds=0.0,
        drain=facts.drain,
        copies=own.copies,
    )
    members = {each.process_id for each in own.peers}
    return [Says(this, own), *(_peer(each, members, boot_seconds) for each in known)]


def _holds(document: StatusDocument) -> tuple[int, ...]:
    return tuple(each.partition for each in document.partitions if each.phase not in _HOLDS_NOTHING)


def _peer(known: Known, members: set[str], boot_seconds: float) -> Says:
    document, peer = known.document, known.peer
    facts = document.facts if document else None
    process = Process(
        process_id=peer.process_id,
        instance_id=peer.instance_id,
        host=peer.host,
        url=peer.url or None,
        state=known.state,
        since=known.since,
        last_error=known.error,
        is_member=peer.process_id in members,
        partitions=_holds(document) if document else peer.owned,
        version=facts.version if facts else None,
        app_version=facts.app_version if facts else None,
        started_at=facts.started_at if facts else None,
        age_seconds=max(0.0, boot_seconds - document.made_at) if document else None,
        drain=facts.drain if facts else None,
        copies=document.copies if document else None,
    )
    return Says(process, document)


def origin(process: Process | None) -> dict[str, Any]:
    """Return the fields of a row that say who says it."""
    return {
        "process_id": process.process_id if process else None,
        "host": process.host if process else None,
        "process_state": process.state if process else None,
        "age_seconds": process.age_seconds if process else None,
    }


class Covered(NamedTuple):
    """The processes that a request is about; this one comes first."""

    says: Sequence[Says]
    scope: Scope

    @property
    def own(self) -> StatusDocument:
        """The status of the process that answers."""
        document = self.says[0].document
        assert document is not None  # noqa: S101 - the own one comes first, and `fleet` needs it
        return document

    @property
    def copies_warm(self) -> int | None:
        """The warm copies that can be asked, of each partition as many as are wanted at most; None: not known."""
        if self.scope is Scope.LOCAL or self.own.copies is None:
            return None
        documents = [each for who, each in self.says if each is not None and who.can_be_asked]
        warm = Counter(copy.partition for each in documents for copy in each.standbys if copy.state == CopyState.WARM)
        return sum(min(count, self.own.copies.wanted) for count in warm.values())


def held(covered: Covered) -> list[Held]:
    """List the partitions of this process, or of the app, by number."""
    if covered.scope is Scope.LOCAL:
        return [Held(each.partition, covered.says[0].process, each) for each in covered.own.partitions]
    return _held_by_any(covered.says, covered.own.facts.partition_count)


def find_partition(covered: Covered, partition: int) -> Held | None:
    """Find what is known of a partition; None: there is no such partition, or not here."""
    return next((each for each in held(covered) if each.partition == partition), None)


def _held_by_any(says: Sequence[Says], partition_count: int | None) -> list[Held]:
    """List every partition once, as it is said by the process that most likely has it.

    That is one that can be asked rather than another, and of several the one with the newest claim. A partition that
    only the group's assignment knows is listed with its process alone, a partition without a process with none.
    """
    best: dict[int, tuple[tuple[object, ...], Held]] = {}

    def offer(rank: tuple[object, ...], found: Held) -> None:
        if found.partition not in best or rank > best[found.partition][0]:
            best[found.partition] = (rank, found)

    for process, document in says:
        statuses = document.partitions if document else ()
        for status in statuses:
            rank = (
                status.phase not in _HOLDS_NOTHING,
                process.can_be_asked,
                process.is_member,
                -1 if status.owner_epoch is None else status.owner_epoch,
            )
            offer(rank, Held(status.partition, process, status))
        for number in {*process.partitions}.difference(each.partition for each in statuses):
            offer((True, process.can_be_asked, process.is_member, -2), Held(number, process, None))
    for number in range(partition_count or 0):
        offer((False, False, False, -3), Held(number, None, None))
    return [best[number][1] for number in sorted(best)]
