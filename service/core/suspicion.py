"""Decides whether a suspicion that another process is dead is acted on, and what ends a takeover that the group does
not know of yet: `step(watch, event, now) -> (watch, effects)`. The fence makes every mistake safe, so mistakes only
have to be rare."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from snapreplay.service.core.assignment import Share
from snapreplay.service.core.peers import Peer

PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 10.0, 600.0
QUIET_SECONDS = 1.5
"""An owner that has committed within this time lives, although its HTTP is silent."""


class FalseAlarms(Struct, frozen=True):
    """The suspicions of one process that were false, in a row, the last one at `at` by the loop's clock."""

    times: int = 0
    at: float = -math.inf

    @property
    def until(self) -> float:
        """The time up to which suspicions of the process are ignored: 10 s, 20 s … 10 min after the last false one."""
        if not self.times:
            return -math.inf
        return self.at + min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN * 2.0 ** min(self.times - 1, 16))

    def another(self, now: float) -> FalseAlarms:
        return FalseAlarms(1 if self.is_over(now) else self.times + 1, now)

    def is_over(self, now: float) -> bool:
        """Say whether the last alarm has expired."""
        return now - self.at > 2 * PAUSE_SECONDS_MAX


class Takeover(Struct, frozen=True):
    """A partition of `process_id` that is processed here before the group has given it to us. `epoch`: of our last
    claim."""

    process_id: str
    began_at: float
    epoch: int | None = None


class Watch(Struct, frozen=True):
    """What a process knows about the others, and has taken over.

    Attributes:
        under_way: partition → its takeover.
        alarms: process id → false alarms about it.
        taken_at: process id → when it was last given one of our partitions, by the loop's clock.
    """

    share: Share = field(default_factory=Share)
    under_way: Mapping[int, Takeover] = field(default_factory=dict)
    alarms: Mapping[str, FalseAlarms] = field(default_factory=dict)
    taken_at: Mapping[str, float] = field(default_factory=dict)


class Suspected(NamedTuple):
    """A process seems to be dead. `warm`: partitions with a warm copy here. `answered_at`: when it last answered; None:
    its HTTP port is closed. `is_quiet`: no copy has seen a commit of it either."""

    process_id: str
    warm: frozenset[int]
    answered_at: float | None = None
    is_quiet: bool = False


class Claimed(NamedTuple):
    """The log has our claim of a partition, at this offset."""

    partition: int
    epoch: int


class Assigned(NamedTuple):
    """An assignment gives us these partitions; of `fenced` another process has the later claim."""

    partitions: frozenset[int]
    share: Share
    fenced: frozenset[int] = frozenset()


class Expired(NamedTuple):
    """The session timeout is over since the takeover began."""

    partition: int
    takeover: Takeover


Event = Suspected | Claimed | Assigned | Expired


class Ignore(NamedTuple):
    """Ignore the suspicion: it was false before, and counts again in so many seconds."""

    peer: Peer
    seconds: float


class Lived(NamedTuple):
    """Do nothing: the process was given one of our partitions since its last answer, so it lived then. Where a
    connection is cut, each would fence the other in turn."""

    peer: Peer


class Listen(NamedTuple):
    """Look whether the process commits. If not, suspect it again by the same `answered_at`, as one that is quiet."""

    peer: Peer
    answered_at: float


class BeginTakeover(NamedTuple):
    """Take these partitions over."""

    peer: Peer
    partitions: tuple[int, ...]


class Tell(NamedTuple):
    """Ask the group for a new assignment; `at_once`: no more claims are to come."""

    at_once: bool


class GiveUp(NamedTuple):
    """Take the last assignment once more: the partition was not taken over in time."""

    partition: int


class Alarm(NamedTuple):
    """Count a false alarm: the process is a member still. Suspicions of it are ignored for so many seconds."""

    peer: Peer
    seconds: float


Effect = Ignore | Lived | Listen | BeginTakeover | Tell | GiveUp | Alarm
Stepped = tuple[Watch, tuple[Effect, ...]]


def step(watch: Watch, event: Event, now: float) -> Stepped:
    """Return what is known next, and what to do. Same input, same output; `now` is the loop's clock, in seconds."""
    match event:
        case Suspected():
            return _suspected(watch, event, now)
        case Claimed():
            return _claimed(watch, event)
        case Assigned():
            return _assigned(watch, event, now)
        case Expired(partition, takeover) if watch.under_way.get(partition) == takeover:  # it has no claim
            under_way = {number: each for number, each in watch.under_way.items() if number != partition}
            return replace(watch, under_way=under_way), (GiveUp(partition),)
        case Expired():
            return watch, ()
        case _:
            assert_never(event)


def _suspected(watch: Watch, event: Suspected, now: float) -> Stepped:
    """Take over what the process owned, and what this one is the first to take over, if the copies are warm."""
    peer = next((each for each in watch.share.peers if each.process_id == event.process_id), None)
    if peer is None:
        return watch, ()
    until = watch.alarms.get(peer.process_id, FalseAlarms()).until
    if now < until:
        return watch, (Ignore(peer, until - now),)
    if event.answered_at is not None:
        if watch.taken_at.get(peer.process_id, -math.inf) > event.answered_at:
            return watch, (Lived(peer),)
        if not event.is_quiet:
            return watch, (Listen(peer, event.answered_at),)
    wanted = sorted(set(peer.owned) & set(watch.share.first) & event.warm)
    if not wanted:
        return watch, ()
    begun = dict.fromkeys(wanted, Takeover(peer.process_id, now))
    return replace(watch, under_way={**watch.under_way, **begun}), (BeginTakeover(peer, tuple(wanted)),)


def _claimed(watch: Watch, event: Claimed) -> Stepped:
    """Tell of each claim: a second one comes after the owner, who lives, has fenced in return."""
    takeover = watch.under_way.get(event.partition)
    if takeover is None or takeover.epoch == event.epoch:
        return watch, ()
    under_way = {**watch.under_way, event.partition: replace(takeover, epoch=event.epoch)}
    at_once = all(each.epoch is not None for each in under_way.values())
    return replace(watch, under_way=under_way), (Tell(at_once),)


def _assigned(watch: Watch, event: Assigned, now: float) -> Stepped:
    """End the takeovers that the assignment decides: it gives us the partition, or was made in knowledge of our claim,
    another process has claimed since, or a third process is given it. A process that it names although our claim was
    known lives."""
    share, under_way, judged = event.share, dict(watch.under_way), set[str]()
    joined = (peer for peer in share.peers if peer.process_id not in share.absent)
    owner = {number: peer.process_id for peer in joined for number in peer.owned} if under_way else {}
    for number, takeover in watch.under_way.items():
        is_known = number in share.claimed
        is_given, is_fenced = number in event.partitions, number in event.fenced
        is_elsewhere = owner.get(number, takeover.process_id) != takeover.process_id
        if is_given or is_known or is_fenced or is_elsewhere:
            del under_way[number]
            if is_known:
                judged.add(takeover.process_id)
    alive = [peer for peer in share.peers if peer.process_id in judged.difference(share.absent)]
    known = {**watch.alarms, **{p.process_id: _another(watch, p, now) for p in alive}}
    alarms = {name: each for name, each in known.items() if not each.is_over(now)}
    effects = tuple(Alarm(peer, alarms[peer.process_id].until - now) for peer in alive)
    return Watch(share, under_way, alarms, _taken_at(watch, event, now)), effects


def _taken_at(watch: Watch, event: Assigned, now: float) -> dict[str, float]:
    """Note which processes were given our partitions: one that has joined lives. Forget those not named any more."""
    lost, share = set(watch.share.owned) - event.partitions, event.share
    named = {peer.process_id for peer in share.peers}
    known = {name: at for name, at in watch.taken_at.items() if name in named}
    taken = {peer.process_id: now for peer in share.peers if lost and not lost.isdisjoint(peer.owned)}
    return known | {name: at for name, at in taken.items() if name not in share.absent}


def _another(watch: Watch, peer: Peer, now: float) -> FalseAlarms:
    return watch.alarms.get(peer.process_id, FalseAlarms()).another(now)
