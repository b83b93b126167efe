"""Takes partitions over from a process that seems to be dead, before the group has noticed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from msgspec.structs import replace

from snapreplay.counted import counted
from snapreplay.service.control.counters import FALSE_ALARMS, TAKEOVERS
from snapreplay.service.core.assignment import Share
from snapreplay.service.core.peers import Peer
from snapreplay.service.core.suspicion import (
    QUIET_SECONDS,
    Alarm,
    Assigned,
    BeginTakeover,
    Claimed,
    Effect,
    Event,
    Expired,
    Ignore,
    Listen,
    Lived,
    Suspected,
    Takeover,
    Tell,
    Watch,
    step,
)
from snapreplay.service.partition.standby import Standbys
from snapreplay.service.runtime.tasks import watched

log = logging.getLogger("snapreplay.partition")

CLAIMS_SECONDS = 0.3
"""So long the group is not told of a claim while more are to come: an owner that lives asks the group after 0.75 s."""


class Takeovers:
    """The takeovers of a process, for the runners' loop. Each is a recovery from a warm copy. It ends when an
    assignment confirms it, or denies it although the group knows its claim; without a claim, after the session
    timeout."""

    def __init__(
        self,
        app_id: str,
        standbys: Standbys,
        patience_seconds: float,
        start: Callable[[int], None],
        given_up: Callable[[], None],
        rejoin: Callable[[], None],
    ) -> None:
        """Take callbacks: to start a partition's runner, for a takeover that was given up, and to rejoin the group."""
        self._standbys = standbys
        self._patience_seconds = patience_seconds
        self._start = start
        self._given_up = given_up
        self._rejoin = rejoin
        # Made now, so that both series start at 0.
        self._taken, self._false_alarms = TAKEOVERS.labels(app_id), FALSE_ALARMS.labels(app_id)
        self._watch = Watch()
        self._listening: dict[str, asyncio.Task[None]] = {}
        self._telling: asyncio.TimerHandle | None = None

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions that are processed here before the group has assigned them. Any thread."""
        return frozenset(self._watch.under_way)

    def suspect(self, process_id: str, why: str, *, silent_seconds: float | None) -> None:
        """Take over what this process owned, where this one is the first successor and its copy is warm.

        `silent_seconds`: since its last sign of life over HTTP; it lives while it commits. None: its port is closed.
        """
        if (listening := self._listening.pop(process_id, None)) is not None:
            listening.cancel()
        answered_at = None if silent_seconds is None else asyncio.get_running_loop().time() - silent_seconds
        self._judge(Suspected(process_id, self._standbys.warm, answered_at), why)

    def _judge(self, suspected: Suspected, why: str) -> None:
        for effect in self._step(suspected):
            match effect:
                case Ignore(peer, seconds):
                    log.warning("%s; ignored for %.0f s, because the last alarm was false", _said(peer, why), seconds)
                case Lived(peer):
                    log.warning(
                        "%s; but it has received a partition from this process since, so it was alive", _said(peer, why)
                    )
                case Listen(peer, answered_at):
                    quiet = self._when_quiet(peer, answered_at, why, asyncio.get_running_loop().time())
                    listening = asyncio.get_running_loop().create_task(quiet)
                    self._listening[peer.process_id] = watched(listening, "the wait for a sign of life")
                case BeginTakeover(peer, partitions):
                    taken = counted(len(partitions), "partition")
                    log.warning("%s; %s taken over: %s", _said(peer, why), taken, list(partitions))
                    self._begin(partitions)
                case _:  # follows something else
                    pass

    def assigned(self, partitions: set[int], share: Share, fenced: frozenset[int]) -> frozenset[int]:
        """Apply an assignment; return the partitions that stay although it lacks them. `fenced`: claimed by others."""
        for effect in self._step(Assigned(frozenset(partitions), share, fenced)):
            if isinstance(effect, Alarm):
                self._false_alarm(effect)
        self._listening = {name: each for name, each in self._listening.items() if not each.done()}
        return self.partitions

    def end(self) -> None:
        """Take nothing over any more."""
        self._watch = replace(self._watch, share=Share())
        for task in self._listening.values():
            task.cancel()
        if self._telling is not None:
            self._telling.cancel()

    def _step(self, event: Event) -> tuple[Effect, ...]:
        self._watch, effects = step(self._watch, event, asyncio.get_running_loop().time())
        return effects

    async def _when_quiet(self, peer: Peer, answered_at: float, why: str, since: float) -> None:
        """Take over unless a copy sees a commit of this owner."""
        await asyncio.sleep(max(0.0, self._standbys.seen_at(peer.owned) + QUIET_SECONDS - since))
        if self._standbys.seen_at(peer.owned) > since:
            log.info("%s; but it has committed since", _said(peer, why))
            return
        # An assignment may have come meanwhile.
        self._judge(Suspected(peer.process_id, self._standbys.warm, answered_at, is_quiet=True), why)

    def _begin(self, partitions: tuple[int, ...]) -> None:
        for number in partitions:
            takeover = self._watch.under_way[number]
            self._taken.inc()
            asyncio.get_running_loop().call_later(self._patience_seconds, self._expire, number, takeover)
            self._start(number)

    def claimed(self, number: int, epoch: int) -> None:
        """Tell the group of a claim, at once if it is the last one: of two owners the later claim counts there."""
        for effect in self._step(Claimed(number, epoch)):
            if effect == Tell(at_once=True):
                self._tell()
            elif self._telling is None:
                self._telling = asyncio.get_running_loop().call_later(CLAIMS_SECONDS, self._tell)

    def _tell(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        self._telling = None
        self._rejoin()

    def _expire(self, number: int, takeover: Takeover) -> None:
        """Give up a takeover that has not come to its claim."""
        for _ in self._step(Expired(number, takeover)):
            log.warning("partition %d: it was not taken over within %.1f s", number, self._patience_seconds)
            self._given_up()

    def _false_alarm(self, alarm: Alarm) -> None:
        self._false_alarms.inc()
        log.warning(
            "process %s is still a member of the group: it was suspected by mistake, and was fenced."
            " It is not suspected again for %.0f s",
            alarm.peer.process_id,
            alarm.seconds,
        )


def _said(peer: Peer, why: str) -> str:
    return f"process {peer.process_id} ({peer.instance_id} on host {peer.host}) seems to be dead: {why}"
