"""The partition assignor of the app's group: what each process says of itself travels in the user data of its join,
and which copies it is to hold in the user data of its assignment.

It offers what the client's assignors do, but each group member has an assignor of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from snapreplay.service.core.assignment import Member, Share, assigned

T = TypeVar("T")

log = logging.getLogger(__name__)

_VERSION = 0  # of Kafka's consumer protocol


class _Copies(msgspec.Struct):
    copies: tuple[int, ...] = ()
    next: tuple[int, ...] = ()


class StandbyAssignor:
    """The assignor of one member.

    Attributes:
        share: what the group gave to this member last.
    """

    name = "snapreplay"

    def __init__(self, topic: str, me: Callable[[], Member]) -> None:
        """Take `me`, which is asked at every join what this process owns and holds; from the membership's thread."""
        self._topic = topic
        self._me = me
        self.share = Share()

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return ConsumerProtocolMemberMetadata(_VERSION, sorted(topics), msgspec.msgpack.encode(self._me()))

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Assign as `core.assignment` says; the leader of the group is asked."""
        said = {name: _member(name, each.user_data) for name, each in members.items()}
        shares = assigned(said, cluster.partitions_for_topic(self._topic) or ())
        return {name: self._encoded(share) for name, share in shares.items()}

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        given = _read(assignment.user_data, _Copies) or _Copies()
        owned = tuple(sorted(each.partition for each in assignment.partitions()))
        self.share = Share(owned, given.copies, given.next)

    def _encoded(self, share: Share) -> ConsumerProtocolMemberAssignment:
        given = [(self._topic, list(share.owned))] if share.owned else []
        user_data = msgspec.msgpack.encode(_Copies(share.copies, share.next))
        return ConsumerProtocolMemberAssignment(_VERSION, given, user_data)


def _member(name: str, user_data: bytes) -> Member:
    """Return what a member says; of one that says nothing readable only that it is there."""
    member = _read(user_data, Member)
    if member is None:
        log.warning("member %s of the group does not say what it holds: it gets no copies", name)
    return member or Member()


def _read(data: bytes, kind: type[T]) -> T | None:
    """Decode user data; fields of newer versions are left out. None: nothing of ours."""
    try:
        return msgspec.msgpack.decode(data or b"", type=kind)
    except msgspec.DecodeError:
        return None
