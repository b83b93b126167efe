"""Processes of one group over one partition: suspicions, right and wrong, in every interleaving with claims, joins and
assignments. What each does is the product's (`suspicion.step`), and so is what the group assigns (`assignment`)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from snapreplay.service.core.assignment import Member, Share, assigned, peers_of
from snapreplay.service.core.peers import Peer
from snapreplay.service.core.suspicion import (
    Assigned,
    BeginTakeover,
    Claimed,
    Event,
    Expired,
    GiveUp,
    Listen,
    Suspected,
    Tell,
    Watch,
    step,
)
from tests.explore.replacing import replace

HEARD_AT = -1.0
"""Before the beginning; everything happens at 0."""
OURS = frozenset((0,))
"""The partition, as a set."""
NONE: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Process:
    """One process.

    Attributes:
        runs: what its runner of the partition does: recovers, live, fenced; "": it has none.
        epoch: of its last claim.
        is_warm: it has a warm copy.
        asks: how often it has asked for an assignment.
        told_asks: how many of these its last join has said.
        generation: of the group, that it knows.
        listening: whose commits it looks for, as it does not hear them.
    """

    name: str
    is_dead: bool = False
    runs: str = ""
    epoch: int = -1
    is_warm: bool = False
    asks: int = 0
    told_asks: int = 0
    generation: int = 0
    listening: frozenset[str] = frozenset()
    watch: Watch = field(default_factory=Watch)

    @property
    def member(self) -> Member:
        """Return how it describes itself in a join."""
        owns = self.runs in {"recovers", "live"}
        epochs = {0: self.epoch} if self.runs == "live" else {}
        warm = OURS if self.is_warm and not self.runs else NONE
        return Member(
            OURS if owns else NONE,
            warm,
            replicas=1,
            epochs=epochs,
            peer=Peer(self.name, self.name, "host", ""),
            asks=self.asks,
            generation=self.generation,
        )


@dataclass(frozen=True)
class Group:
    """The group, as its coordinator knows it.

    Attributes:
        joined: who has joined in the rebalance that is under way; None: there is none.
        is_due: somebody has asked for one.
        owner: whom it has given the partition.
        news: the assignment, for each process that has not heard of it yet; it does before it joins again.
    """

    members: frozenset[str]
    generation: int = 0
    joined: tuple[tuple[str, Member], ...] | None = None
    is_due: bool = False
    owner: str = ""
    news: tuple[tuple[str, Share, int], ...] = ()


@dataclass(frozen=True)
class Fleet:
    """`suspicions`, `kills`, `expiries` and `misses` are how many may still happen, a miss being an assignment that a
    process never hears of; `last`: who has claimed last. `is_cut`: none has heard another one since the beginning,
    and none commits; `taker`: who takes over then."""

    processes: tuple[Process, ...]
    group: Group
    claims: int = 1
    last: str = ""
    suspicions: int = 1
    kills: int = 0
    expiries: int = 1
    misses: int = 0
    is_cut: bool = False
    taker: str = ""
    broken: str = field(default="", compare=False)

    def on(self, process: Process, **changes: Any) -> Fleet:
        """Return the fleet with this process in the place of the one of its name."""
        changed = tuple(process if each.name == process.name else each for each in self.processes)
        return replace(self, processes=changed, **changes)

    def of(self, **changes: Any) -> Fleet:
        return replace(self, group=replace(self.group, **changes))


Move = tuple[str, Fleet]
_encoded = msgspec.msgpack.Encoder(enc_hook=repr).encode


def beginning(count: int, **bounds: Any) -> Fleet:
    """Make an owner, and others with warm copies; all know the same assignment."""
    names = "ABC"[:count]
    processes = [
        Process(name, runs="" if at else "live", epoch=0 if not at else -1, is_warm=at > 0)
        for at, name in enumerate(names)
    ]
    fleet = Fleet(tuple(processes), Group(frozenset(names), joined=()), last="A", **bounds)
    for process in processes:
        (fleet,) = (after for _, after in _joins(fleet, process))
    while fleet.group.news:
        ((_, fleet),) = list(
            _hears(fleet, next(each for each in fleet.processes if each.name == fleet.group.news[0][0]))
        )
    return fleet


def key_of(fleet: Fleet) -> bytes:
    """Return a key of everything that decides what can happen next: of what is counted, only what is compared."""
    group, members = fleet.group, dict(fleet.group.joined or ())
    taken = [list(each.watch.under_way.values()) for each in fleet.processes]
    epochs = {each.epoch for each in fleet.processes if each.runs == "live"}
    epochs |= {epoch for each in members.values() for epoch in each.epochs.values()}
    epochs |= {each.epoch for takeovers in taken for each in takeovers if each.epoch is not None}
    rank = _ranks(epochs)
    known = {each.generation for each in fleet.processes} | {each.generation for each in members.values()}
    age = _ranks(known | {group.generation, *(generation for _, _, generation in group.news)})
    processes = [
        (
            (each.name, each.is_dead, each.runs, each.is_warm, each.asks > each.told_asks),
            rank.get(each.epoch, -1) if each.runs == "live" else -1,
            age[each.generation],
            (each.watch.share, sorted(each.watch.alarms), sorted(each.watch.taken_at) if fleet.is_cut else ()),
            sorted(each.listening),
            [(one.process_id, rank.get(-1 if one.epoch is None else one.epoch, -1)) for one in takeovers],
        )
        for each, takeovers in zip(fleet.processes, taken, strict=True)
    ]
    joined = [
        (name, each.owned, each.warm, list(map(rank.get, each.epochs.values())), age[each.generation])
        for name, each in sorted(members.items())
    ]
    news = [(name, share, age[generation]) for name, share, generation in sorted(group.news)]
    coordinator = (
        sorted(group.members),
        age[group.generation],
        group.joined is None,
        joined,
        group.is_due,
        group.owner,
        news,
    )
    key = (processes, coordinator, fleet.last, fleet.taker, fleet.suspicions, fleet.kills, fleet.expiries, fleet.misses)
    return hashlib.blake2b(_encoded(key), digest_size=16).digest()


def _ranks(numbers: Iterable[int]) -> dict[int, int]:
    return {number: place for place, number in enumerate(sorted(numbers))}


def moves(fleet: Fleet) -> Iterator[Move]:
    """Yield what may happen next."""
    yield from _steps(fleet)
    for process in fleet.processes:
        if process.is_dead:
            continue
        if fleet.kills:
            yield f"{process.name} is killed", fleet.on(replace(process, is_dead=True), kills=fleet.kills - 1)
        if fleet.suspicions:
            for other in fleet.processes:
                if other is not process:
                    event = Suspected(other.name, process.member.warm, HEARD_AT if fleet.is_cut else None)
                    after = _stepped(replace(fleet, suspicions=fleet.suspicions - 1), process, event)
                    yield f"{process.name} takes {other.name} for dead", after


def problems(fleet: Fleet) -> Iterator[str]:
    """Say what is wrong once nothing more happens by itself: one owner, whom all agree on, and warm copies."""
    alive = [each for each in fleet.processes if not each.is_dead]
    if not alive or next(_steps(fleet), None) is not None:
        return
    owners = [each.name for each in alive if each.runs]
    if owners != [fleet.last] or fleet.group.owner != fleet.last:
        yield f"nothing happens any more: {owners} have runners, {fleet.last} has claimed last, {fleet.group} has it"
    if any(each.watch.under_way for each in alive):
        yield "nothing happens any more, and a takeover has no end"
    if not all(each.is_warm for each in alive if each.watch.share.copies):
        yield "nothing happens any more, and a copy is not warm"


def _steps(fleet: Fleet) -> Iterator[Move]:
    """Yield what the processes and the group do by themselves."""
    for process in fleet.processes:
        if not process.is_dead:
            yield from _steps_of(fleet, process)
    yield from _group_steps(fleet)


def _steps_of(fleet: Fleet, process: Process) -> Iterator[Move]:
    name, share = process.name, process.watch.share
    if process.runs == "recovers":
        claimed = replace(process, runs="live", epoch=fleet.claims)
        after = fleet.on(claimed, claims=fleet.claims + 1, last=name)
        yield f"{name} fences and claims", _stepped(after, claimed, Claimed(0, claimed.epoch))
        takeovers = [each for each in process.watch.under_way.values() if each.epoch is None]
        for takeover in takeovers if fleet.expiries else ():
            after = replace(fleet, expiries=fleet.expiries - 1)
            yield f"{name} gives up its takeover", _stepped(after, process, Expired(0, takeover))
    if process.runs == "live" and fleet.last != name:
        yield f"{name} finds out that it is fenced", fleet.on(replace(process, runs="fenced"))
    if process.runs == "fenced" and fleet.group.joined is None and fleet.group.owner == name:
        yield f"{name} is given it by the coordinator", fleet.on(replace(process, runs="recovers"))
    for other in sorted(process.listening):
        listened = replace(process, listening=process.listening - {other})
        event = Suspected(other, process.member.warm, HEARD_AT, is_quiet=True)
        yield f"{name} sees no commit of {other}", _stepped(fleet, listened, event)
    if not process.runs and not process.is_warm and share.copies:
        warm = replace(process, is_warm=True)
        yield f"{name} has a warm copy", _asks(fleet, warm) if share.next else fleet.on(warm)
    yield from _hears(fleet, process)


def _stepped(fleet: Fleet, process: Process, event: Event) -> Fleet:
    """Let the process hear of it, and do what follows."""
    watch, effects = step(process.watch, event, 0.0)
    process = replace(process, watch=watch)
    fleet, taker = fleet.on(process), fleet.taker
    for effect in effects:
        if isinstance(effect, BeginTakeover):
            fleet = fleet.on(
                replace(process, runs="recovers", is_warm=False), taker=process.name if fleet.is_cut else ""
            )
        elif isinstance(effect, Listen):
            fleet = fleet.on(replace(process, listening=process.listening | {effect.peer.process_id}))
        elif isinstance(effect, Tell):
            fleet = _asks(fleet, process)
        elif isinstance(effect, GiveUp):
            fleet = _applied(fleet, process, watch.share, process.generation)
    if fleet.is_cut and taker not in ("", fleet.taker):
        return replace(fleet, broken=f"{fleet.taker} takes over in return from {taker}, which has lived meanwhile")
    return fleet


def _asks(fleet: Fleet, process: Process) -> Fleet:
    return fleet.on(replace(process, asks=process.asks + 1)).of(is_due=True)


# ---------------------------------------------------------------------- the group


def _group_steps(fleet: Fleet) -> Iterator[Move]:
    group = fleet.group
    if group.joined is None and group.is_due and group.members:
        yield "the group rebalances", fleet.of(joined=(), is_due=False)
    for process in fleet.processes:
        if process.name not in group.members:
            continue
        if process.is_dead:
            joined = None if group.joined is None else tuple(each for each in group.joined if each[0] != process.name)
            left = fleet.of(members=group.members - {process.name}, joined=joined, is_due=True)
            yield f"the session of {process.name} ends", _completed(left)
        elif group.joined is not None and process.name not in dict(group.joined):
            news = tuple(each for each in group.news if each[0] != process.name)
            if news == group.news:
                yield from _joins(fleet, process)
            elif fleet.misses:
                yield from _joins(replace(fleet, misses=fleet.misses - 1).of(news=news), process)


def _joins(fleet: Fleet, process: Process) -> Iterator[Move]:
    joined = (*(fleet.group.joined or ()), (process.name, process.member))
    told = fleet.on(replace(process, told_asks=process.asks))
    yield f"{process.name} joins", _completed(told.of(joined=joined))


def _completed(fleet: Fleet) -> Fleet:
    """Assign, when everybody has joined."""
    group = fleet.group
    if group.joined is None or {name for name, _ in group.joined} != group.members or not group.members:
        return fleet
    members = dict(sorted(group.joined))
    shares = assigned(members, (0,))
    peers, generation = peers_of(members, shares), group.generation + 1
    told = tuple((name, _with(shares[name], peers), generation) for name in members)
    owner = next(name for name, share in shares.items() if share.owned)
    return fleet.of(generation=generation, joined=None, owner=owner, news=(*group.news, *told))


def _with(share: Share, peers: tuple[Peer, ...]) -> Share:
    return Share(share.owned, share.copies, share.next, share.first, peers, share.claimed, share.absent)


def _hears(fleet: Fleet, process: Process) -> Iterator[Move]:
    """Hear of an assignment; ask again, if it is taken for absent, or has asked for something since it joined."""
    mine = next((each for each in fleet.group.news if each[0] == process.name), None)
    if mine is None:
        return
    _, share, generation = mine
    heard = fleet.of(news=tuple(each for each in fleet.group.news if each is not mine))
    is_due = heard.group.is_due or process.asks > process.told_asks or process.name in share.absent
    after = _applied(heard, process, share, generation).of(is_due=is_due)
    yield f"{process.name} hears of assignment {generation}", after


def _applied(fleet: Fleet, process: Process, share: Share, generation: int) -> Fleet:
    """Start and release the runner, and hold a copy or not, as `Supervisor.assigned` does."""
    event = Assigned(frozenset(share.owned), share, OURS if process.runs == "fenced" else NONE)
    suspected = {each.process_id for each in process.watch.under_way.values()}
    others = {each.process_id for each in share.peers if each.owned} - suspected - set(share.absent)
    had_claimed = process.runs == "live" and fleet.last == process.name and suspected and not others
    watch, _ = step(process.watch, event, 0.0)
    runs, is_warm = process.runs, process.is_warm
    if share.owned or watch.under_way:
        runs, is_warm = runs or "recovers", False
    else:
        is_warm = (is_warm or (runs == "live" and fleet.last == process.name)) and bool(share.copies)
        runs = ""
    applied = fleet.on(replace(process, watch=watch, runs=runs, is_warm=is_warm, generation=generation))
    if had_claimed and not runs and not share.claimed:
        return replace(applied, broken=f"{process.name} gives up what it has claimed, and no other knew of the claim")
    return applied
