"""The changes of the app's group as one process has seen them: who joined, who left, and who was expelled. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

import msgspec

from snapreplay.service.core.assignment import Share
from snapreplay.service.core.peers import Peer

KEPT = 50
ENDS_MAX = 500


class SeenMember(msgspec.Struct, frozen=True):
    """A process of the group."""

    process_id: str
    instance_id: str
    host: str


class GroupChange(msgspec.Struct, frozen=True):
    """A generation of the group, and what has changed since the one before that this process has seen."""

    generation: int
    at: Annotated[
        datetime, msgspec.Meta(tz=True, description="When this process heard of it, by the clock of its host.")
    ]
    members: Annotated[int, msgspec.Meta(description="Processes in it, this one included.")]
    partitions: Annotated[tuple[int, ...], msgspec.Meta(description="Those that it gave to this process, by number.")]
    joined: tuple[SeenMember, ...] = ()
    left: Annotated[
        tuple[SeenMember, ...], msgspec.Meta(description="Gone, after saying over HTTP that it ends in good order.")
    ] = ()
    expelled: Annotated[
        tuple[SeenMember, ...],
        msgspec.Meta(description="Gone after it had seemed to be dead: the coordinator has given it up."),
    ] = ()
    gone: Annotated[
        tuple[SeenMember, ...],
        msgspec.Meta(description="Gone, and nothing was heard over HTTP that says which of the two it was."),
    ] = ()
    absent: Annotated[
        tuple[SeenMember, ...],
        msgspec.Meta(description="Static members that have not joined again: expelled when their session times out."),
    ] = ()
    is_anew: Annotated[
        bool, msgspec.Meta(description="Whether this process itself was out of the group in between.")
    ] = False


class GroupHistory:
    """Keeps the last changes. One thread calls `note`, any thread the rest: no dict is replaced or walked through."""

    def __init__(self) -> None:
        self._peers: dict[str, Peer] | None = None
        self._member_id = ""
        self._seen: tuple[GroupChange, ...] = ()
        self._ends: dict[str, str] = {}  # process id → the field that says how it ended

    @property
    def changes(self) -> tuple[GroupChange, ...]:
        """The changes, newest first, with what is known by now of how a process ended."""
        return tuple(self._sorted(each) for each in self._seen)

    def ended(self, process_id: str) -> None:
        """Hear that a process ends in good order."""
        self._ends[process_id] = "left"

    def suspected(self, process_id: str) -> None:
        """Hear that a process seems to be dead."""
        self._ends[process_id] = "expelled"

    def note(self, at: datetime, generation: int, member_id: str, share: Share) -> None:
        """Note an assignment, unless it does not name the members. `member_id`: the coordinator's name for this
        process."""
        if not share.peers:
            return
        now = {peer.process_id: peer for peer in share.peers}
        before = now if self._peers is None else self._peers
        change = GroupChange(
            generation,
            at,
            len(now),
            share.owned,
            joined=_members(peer for name, peer in now.items() if name not in before),
            gone=_members(peer for name, peer in before.items() if name not in now),
            absent=_members(now[name] for name in share.absent if name in now),
            is_anew=self._member_id not in ("", member_id),
        )
        self._peers, self._member_id = now, member_id
        self._seen = (change, *self._seen)[:KEPT]
        if len(self._ends) > ENDS_MAX:  # of processes that no kept change has
            kept = {*now, *(each.process_id for one in self._seen for each in one.gone)}
            for name in self._ends.keys() - kept:
                self._ends.pop(name)

    def _sorted(self, change: GroupChange) -> GroupChange:
        how: dict[str, list[SeenMember]] = {"left": [], "expelled": [], "gone": []}
        for each in change.gone:
            how[self._ends.get(each.process_id, "gone")].append(each)
        return msgspec.structs.replace(change, **{name: tuple(found) for name, found in how.items()})


def _members(peers: Iterable[Peer]) -> tuple[SeenMember, ...]:
    return tuple(SeenMember(peer.process_id, peer.instance_id, peer.host) for peer in peers)
