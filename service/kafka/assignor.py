"""The partition assignor of the app's group: what each process says of itself travels in the user data of its join,
and which copies it is to hold in the user data of its assignment.

It offers what the client's assignors do, but each group member has an assignor of its own.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

import msgspec
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from snapreplay.service.core.assignment import (
    PEERS_BYTES_MAX,
    PEERS_BYTES_MAX_LARGE,
    Copies,
    Member,
    Share,
    assigned,
    peers_of,
)
from snapreplay.service.core.peers import Peer

T = TypeVar("T")

log = logging.getLogger(__name__)

_VERSION = 0  # of Kafka's consumer protocol


class _Copies(msgspec.Struct):
    copies: tuple[int, ...] = ()
    next: tuple[int, ...] = ()
    first: tuple[int, ...] = ()
    peers: bytes = b""  # compressed: each member gets all of them
    claimed: tuple[int, ...] = ()
    absent: tuple[str, ...] = ()
    copied: Copies | None = None


# Made at import: each app has its group in a thread of its own, and msgspec 0.22 crashes the interpreter if two threads
# are the first to decode a type.
_copies_in = msgspec.msgpack.Decoder(_Copies).decode
_member_in = msgspec.msgpack.Decoder(Member).decode
_peers_in = msgspec.msgpack.Decoder(tuple[Peer, ...]).decode


class StandbyAssignor:
    """The assignor of one member.

    Attributes:
        share: what the group gave to this member last.
        is_bypassed: the coordinator assigned the partitions itself, because a member has the newer protocol (KIP-848).
    """

    name = "snapreplay"

    def __init__(self, topic: str, me: Callable[[], Member]) -> None:
        """Take `me`, which is asked at every join what this process owns and holds; from the membership's thread."""
        self._topic = topic
        self._me = me
        self.share = Share()
        self.is_bypassed = False

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return ConsumerProtocolMemberMetadata(_VERSION, sorted(topics), msgspec.msgpack.encode(self._me()))

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Assign as `core.assignment` says; the leader of the group is asked."""
        said = {name: _member(name, each.user_data) for name, each in members.items()}
        there = cluster.partitions_for_topic(self._topic)
        if there is None:  # deleted, or not to be seen by this process for now: what members have is there
            there = {partition for each in said.values() for partition in each.owned | each.warm}
        shares = assigned(said, there)
        told = _told(shares, peers_of(said, shares))
        return {name: self._encoded(share, told[name]) for name, share in shares.items()}

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        given = _read(assignment.user_data, _copies_in) or _Copies()
        self.is_bypassed = not assignment.user_data
        owned = tuple(sorted(each.partition for each in assignment.partitions()))
        peers = _unpacked(given.peers)
        said = (peers, given.claimed, given.absent, given.copied)
        self.share = Share(owned, given.copies, given.next, given.first, *said)

    def _encoded(self, share: Share, peers: bytes) -> ConsumerProtocolMemberAssignment:
        given = [(self._topic, list(share.owned))] if share.owned else []
        said = (peers, share.claimed, share.absent, share.copied)
        given_too = _Copies(share.copies, share.next, share.first, *said)
        user_data = msgspec.msgpack.encode(given_too)
        return ConsumerProtocolMemberAssignment(_VERSION, given, user_data)


def _told(shares: Mapping[str, Share], peers: Collection[Peer]) -> Mapping[str, bytes]:
    """Return what each member is told of the others: everything; in a large group not what they own, except for the
    partitions that it has copies of; in a larger one nothing."""
    whole = _packed(peers)
    if len(whole) * len(shares) <= PEERS_BYTES_MAX:
        return dict.fromkeys(shares, whole)
    told = {name: _packed(_owners_of(share.copies, peers)) for name, share in shares.items()}
    if (size := sum(map(len, told.values()))) <= PEERS_BYTES_MAX_LARGE:
        return told
    log.warning(
        "the group has too many processes (%d) for each to get the list of the others (%.1f MB; a record holds one):"
        " each shows only its own partitions, and notices a death only by the session timeout",
        len(shares),
        size / 1e6,
    )
    return dict.fromkeys(shares, b"")


def _owners_of(partitions: Collection[int], peers: Iterable[Peer]) -> list[Peer]:
    """Leave out what a member has no use for: that peers own other partitions than these."""
    kept = set(partitions)
    return [msgspec.structs.replace(peer, owned=tuple(each for each in peer.owned if each in kept)) for peer in peers]


def _packed(peers: Iterable[Peer]) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(tuple(peers)))


def _unpacked(packed: bytes) -> tuple[Peer, ...]:
    try:
        return _read(zlib.decompress(packed), _peers_in) or ()
    except zlib.error:
        return ()


def peer_in(metadata: bytes) -> Peer | None:
    """Return who a member is, from what it joined with; None: it does not say."""
    member = _read(ConsumerProtocolMemberMetadata.decode(metadata).user_data, _member_in) if metadata else None
    return member.peer if member is not None else None


def _member(name: str, user_data: bytes) -> Member:
    """Return what a member says; of one that says nothing readable only that it is there."""
    member = _read(user_data, _member_in)
    if member is None:
        log.warning("member %s of the group did not send its partitions and copies, so it gets no copies", name)
    return member or Member()


def _read(data: bytes, decode: Callable[[bytes], T]) -> T | None:
    """Decode user data; fields of other versions are left out. None: nothing of ours."""
    try:
        return decode(data or b"")
    except msgspec.DecodeError:
        return None
