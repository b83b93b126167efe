"""Says which process of a group owns which partition, and which others hold a warm copy of it. Pure.

A move costs a recovery, so an owner keeps what it has. A partition whose owner is gone goes to a warm copy. A process
that is to own more gets a copy first; the partition moves when that copy is warm (KIP-441).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from snapreplay.counted import counted
from snapreplay.service.core.peers import Peer

PEERS_BYTES_MAX, PEERS_BYTES_MAX_LARGE = 256 * 1024, 512 * 1024
"""Of all assignments of a group, which its coordinator writes as one record of a megabyte at most: room for what
processes learn of each other. Beyond the first it is not everything, beyond the second nothing."""
LAG_STEP_OFFSETS = 1_000
"""Copies whose lags differ by less are equally fresh: racks and loads decide."""

K = TypeVar("K")
V = TypeVar("V")


class Holding(NamedTuple):
    """What a process owns, and what it has warm copies of; the other fields are those of `Member`."""

    owned: frozenset[int] = frozenset()
    warm: frozenset[int] = frozenset()
    replicas: int = 0
    epochs: Mapping[int, int] = MappingProxyType({})
    lags: Mapping[int, int] = MappingProxyType({})


class Member(msgspec.Struct, frozen=True):
    """One process, as it describes itself when it joins the group.

    Attributes:
        replicas: its setting `standby.replicas`; with 0 it holds no copies.
        is_leaving: it stops or is drained: it gives everything away, unless all do.
        epochs: the owner epochs of `owned`, as far as claimed: of two owners the later one counts.
        asks: how often it has asked for a new assignment; a coordinator that hears nothing new makes none.
        generation: of the group, when it said this; -1: it is new. The coordinator keeps what a dead static member said
            until its session ends: that is older than the last generation of the others.
        lags: the offsets that warm copies are behind; what is left out is close.
    """

    owned: frozenset[int] = frozenset()
    warm: frozenset[int] = frozenset()
    replicas: int = 0
    rack: str = ""
    is_leaving: bool = False
    epochs: dict[int, int] = msgspec.field(default_factory=dict)
    peer: Peer | None = None
    asks: int = 0
    generation: int = -1
    lags: dict[int, int] = msgspec.field(default_factory=dict)


class Share(msgspec.Struct, frozen=True):
    """The share of one process: partitions to own and to copy, sorted.

    Attributes:
        next: copies whose partitions move here as soon as they are warm.
        first: copies that take over if the owner seems to be dead, each in one process.
        peers: all processes of the group; empty: not known.
        claimed: partitions whose claims by this process were known when the shares were made.
        absent: process ids of members that have not joined again.
        copied: the copies of the partitions that this process owns; None: not known.
    """

    owned: tuple[int, ...] = ()
    copies: tuple[int, ...] = ()
    next: tuple[int, ...] = ()
    first: tuple[int, ...] = ()
    peers: tuple[Peer, ...] = ()
    claimed: tuple[int, ...] = ()
    absent: tuple[str, ...] = ()
    copied: Copies | None = None

    def owned_besides(self, process_id: str) -> frozenset[int]:
        """Return the partitions of the other processes that have joined."""
        others = (peer for peer in self.peers if peer.process_id not in (process_id, *self.absent))
        return frozenset(number for peer in others for number in peer.owned)


INTRODUCTIONS_MAX = 5
"""The most requests of one process in a row: no process may keep the group rebalancing."""


class Introductions:
    """Says when a process asks for a new assignment because the others do not know it: a static member that was started
    again gets its predecessor's assignment, and a member that joined late is taken for absent."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def is_due(self, process_id: str, share: Share) -> bool:
        """Judge by an assignment; without peers nothing is known."""
        names = {peer.process_id for peer in share.peers}.difference(share.absent)
        self._in_a_row = 0 if not share.peers or process_id in names else self._in_a_row + 1
        return 0 < self._in_a_row <= INTRODUCTIONS_MAX


def assigned(members: Mapping[str, Member], partitions: Iterable[int]) -> dict[str, Share]:
    """Share the partitions among the members: id → share. Same input, same output.

    Each partition has one owner, and as many copies elsewhere as the largest `replicas` says and processes allow; one
    more while it moves. Once every copy is warm, and no member leaves or is absent, the numbers of owned partitions
    differ by at most one. An absent member keeps its partitions until another takes them over, and gets no new ones.
    """
    plan = _Plan(members, sorted(partitions))
    plan.balance()
    plan.own()
    plan.copy()
    return plan.shares()


def peers_of(members: Mapping[str, Member], shares: Mapping[str, Share]) -> tuple[Peer, ...]:
    """Return all processes of the group, each with what it owns now."""
    known = [
        replace(member.peer or Peer(name, "", "", ""), owned=shares[name].owned, is_leaving=member.is_leaving)
        for name, member in members.items()
    ]
    return tuple(sorted(known, key=lambda peer: peer.process_id))


class _Plan:
    def __init__(self, members: Mapping[str, Member], partitions: list[int]) -> None:
        self.members, self.partitions = members, partitions
        self.target: dict[int, str] = {}
        """partition → its owner when everything is balanced."""
        self.owner: dict[int, str] = {}
        """partition → its owner now."""
        self.copies: dict[int, list[str]] = {}
        self.next: dict[int, str] = {}
        self.absent = _absent(self.members)
        staying = {name for name, member in self.members.items() if not member.is_leaving}
        self.staying = sorted(staying if staying - self.absent else self.members)
        self.present = [name for name in self.staying if name not in self.absent] or self.staying
        processed = _inverted({name: self.members[name].owned for name in sorted(self.members)})
        self.before: dict[int, str] = {
            partition: max(processed[partition], key=lambda name: self._rank(name, partition))
            for partition in self.partitions
            if partition in processed
        }
        self.warm = _inverted({name: self.members[name].warm for name in self.present})

    def balance(self) -> None:
        """Find the balanced owners: as many as possible keep what they have, then what they have a copy of."""
        room = self._quotas()
        for partition in self.partitions:
            before = self.before.get(partition, "")
            if room.get(before, 0) > 0:
                self._aim(partition, before, room)
        left = [partition for partition in self.partitions if partition not in self.target]
        for partition in sorted(left, key=lambda each: (len(self.warm.get(each, ())), each)):
            free = [name for name in self.present if room[name] > 0]
            best = min(free, key=lambda name: (*self._coldness(name, partition), -room[name], name))
            self._aim(partition, best, room)

    def own(self) -> None:
        """Find the owners now: a partition that is processed moves only to a warm copy."""
        load: Counter[str] = Counter()
        for partition in self.partitions:
            target, before = self.target[partition], self.before.get(partition)
            waits_for_copy = self._holds_copies(target) and partition not in self.members[target].warm
            owner = target
            if before is not None and before != target and waits_for_copy and before in self.staying:
                owner = before
            elif before not in self.staying and waits_for_copy and (warm := self.warm.get(partition)):
                owner = min(warm, key=lambda name: (self._coldness(name, partition), load[name], name))
            if owner != target:
                self.next[partition] = target
            self.owner[partition] = owner
            load[owner] += 1

    def copy(self) -> None:
        """Spread the copies: over other racks than the owner's first, then where one is warm, then evenly."""
        holders = [name for name in self.present if self._holds_copies(name)]
        self.holders = frozenset(holders)
        replicas = self.replicas = max((self.members[name].replicas for name in holders), default=0)
        most = -(-len(self.partitions) * min(replicas, max(len(holders) - 1, 0)) // max(len(holders), 1))
        load: Counter[str] = Counter()
        for partition in self.partitions:
            chosen = [self.next[partition]] if partition in self.next else []
            wanted = replicas + len(chosen)
            while len(chosen) < wanted:
                racks = {self.members[name].rack for name in (self.owner[partition], *chosen)} - {""}
                free = [name for name in holders if name not in chosen and name != self.owner[partition]]
                if not free:
                    break
                cost = partial(self._cost, partition=partition, racks=racks, load=load, most=most)
                # Few are warm, and a warm one on another rack that has room costs least of all.
                best = min((name for name in self.warm.get(partition, ()) if name in free), key=cost, default=free[0])
                if cost(best)[:3] != (False, False, False):
                    best = min(free, key=cost)
                chosen.append(best)
                load[best] += 1
            self.copies[partition] = chosen

    def shares(self) -> dict[str, Share]:
        absent = tuple(peer.process_id for name in sorted(self.absent) if (peer := self.members[name].peer) is not None)

        owned = _inverted({each: [self.owner[each]] for each in self.partitions})
        copies = _inverted(self.copies)
        following = _inverted({each: [self.next[each]] for each in self.partitions if each in self.next})
        first = _inverted({each: [self._first(each)] for each in self.partitions if self.copies[each]})

        return {
            name: Share(
                tuple(owned.get(name, ())),
                tuple(copies.get(name, ())),
                tuple(following.get(name, ())),
                tuple(first.get(name, ())),
                claimed=tuple(sorted(member.epochs)),
                absent=absent,
                copied=self._copied(name, owned.get(name, ())),
            )
            for name, member in self.members.items()
        }

    def _copied(self, name: str, owned: Iterable[int]) -> Copies:
        holders, rack = self.holders - {name}, self.members[name].rack
        idle = Counter(self._why_idle(each) for each in self.members if each not in self.holders and each != name)
        racks = {self.members[each].rack for each in holders} - {"", rack}
        beside = [self.copies[each] for each in owned] if rack else ()
        on_rack = sum(bool(each) and all(self.members[held].rack == rack for held in each) for each in beside)
        wanted = self.replicas or max(member.replicas for member in self.members.values())
        return copies_given(wanted, len(holders), idle, on_rack, len(racks))

    def _why_idle(self, name: str) -> str:
        if name in self.absent:
            return "gone"
        return "drained or stopping" if self._holds_copies(name) else "with standby.replicas=0"

    def _first(self, partition: int) -> str:
        """Return who has the first copy; a warm one comes before one that is still loaded, then a fresher one."""
        return min(self.copies[partition], key=partial(self._coldness, partition=partition))

    def _coldness(self, name: str, partition: int) -> tuple[bool, int]:
        member = self.members[name]
        return partition not in member.warm, member.lags.get(partition, 0) // LAG_STEP_OFFSETS

    def _rank(self, name: str, partition: int) -> tuple[bool, int]:
        # A process that leaves does not give a partition back to the absent one from which it took it over.
        is_left = any(member.is_leaving and partition in member.owned for member in self.members.values())
        stays = name in self.staying and not (is_left and name in self.absent)
        return stays, self.members[name].epochs.get(partition, -1)

    def _quotas(self) -> dict[str, int]:
        known = Counter(self.before[partition] for partition in self.partitions if partition in self.before)
        kept = {name: known[name] for name in self.staying if name not in self.present}
        each, more = divmod(len(self.partitions) - sum(kept.values()), len(self.present))
        fullest = sorted(self.present, key=lambda name: (-known[name], name))
        return kept | {name: each + (place < more) for place, name in enumerate(fullest)}

    def _aim(self, partition: int, name: str, room: dict[str, int]) -> None:
        self.target[partition] = name
        room[name] -= 1

    def _holds_copies(self, name: str) -> bool:
        return self.members[name].replicas > 0

    def _cost(
        self, name: str, partition: int, racks: set[str], load: Mapping[str, int], most: int
    ) -> tuple[bool, bool, bool, int, str]:
        member = self.members[name]
        is_full = load[name] >= most
        return is_full, member.rack in racks, partition not in member.warm, load[name], name


def _inverted(lists: Mapping[K, Iterable[V]]) -> dict[V, list[K]]:
    """Return each value with the keys that have it, in the order of `lists`."""
    keys: dict[V, list[K]] = {}
    for key, values in lists.items():
        for value in values:
            keys.setdefault(value, []).append(key)
    return keys


def _absent(members: Mapping[str, Member]) -> frozenset[str]:
    """Return those that the others have been through a generation without."""
    latest = max(member.generation for member in members.values())
    return frozenset(name for name, member in members.items() if 0 <= member.generation < latest)


class Copies(msgspec.Struct, frozen=True):
    """The warm copies that the group has given to each partition of a process."""

    wanted: Annotated[
        int, msgspec.Meta(description="Of each partition: the largest `standby.replicas` of the group.")
    ] = 0
    given: Annotated[
        int, msgspec.Meta(description="Of those, the ones that a process is to hold, whether warm or not.")
    ] = 0
    why_missing: Annotated[str, msgspec.Meta(description="Why fewer are given than wanted; or empty.")] = ""
    on_owners_rack: Annotated[
        int, msgspec.Meta(description="Partitions of this process whose copies are all on its own rack.")
    ] = 0
    why_on_owners_rack: Annotated[str, msgspec.Meta(description="Why they are; or empty.")] = ""


def copies_given(wanted: int, holders: int, idle: Mapping[str, int], on_rack: int, other_racks: int) -> Copies:
    """Return what a process learns of the copies of its partitions. `idle` counts processes without copies by
    reason; `on_rack`: partitions whose copies are all on its own rack."""
    given = min(wanted, holders)
    why_missing = _missing(holders, idle) if given < wanted else ""
    full = "the processes on other racks already have their share of copies"
    why_rack = full if other_racks else "no process on another rack holds copies"
    return Copies(wanted, given, why_missing, on_rack, why_rack if on_rack else "")


def _missing(holders: int, idle: Mapping[str, int]) -> str:
    others = holders + sum(idle.values())
    if not others:
        return "it is the only process of the group"
    listed = ", ".join(f"{count} {why}" for why, count in idle.items() if count)
    return f"the group has {counted(others, 'other process')}" + (f": {listed}" if holders < others else "")
