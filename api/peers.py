"""Follows the other processes of the group, each over one long connection: what they do, and whether they live."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

import msgspec

from snapreplay.api import events
from snapreplay.api.events import Ages, Parser, ServerEvent, TooLarge
from snapreplay.api.peer_client import (
    UNKNOWN,
    Answer,
    Caller,
    ConnectionsRefused,
    Endpoint,
    NoAnswer,
    NotTrusted,
    asked,
)
from snapreplay.api.serving import connections_max
from snapreplay.service.clock import boot_seconds, wall_time
from snapreplay.service.control.protocol import StatusDocument
from snapreplay.service.core.liveness import Life, PeerState
from snapreplay.service.core.peers import Peer

log = logging.getLogger("snapreplay.http")

TICK_SECONDS = 0.1
FIRST_EVENT_SECONDS = 5.0
LONG_SECONDS = 1.0
EVENT_BYTES_MAX = 32 * 1024 * 1024
PAUSES_SECONDS = (0.0, 0.01, 0.03, 0.05, 0.07, 0.25, 0.5, 1.0, 2.0, 5.0)
"""Before each further attempt. The first ones fall into the time that distinguishes a dead process from one whose
process for HTTP is started again."""
PAUSE_UNKNOWN = 5  # of these pauses, the first one for a peer that was not heard lately
DEAD_SECONDS = 900.0
DEAD_MAX = 16


class Known(NamedTuple):
    """The knowledge of one peer. `document.made_at` is by our clock; None: it has sent nothing that can be read."""

    peer: Peer
    state: PeerState
    since: datetime
    error: str
    document: StatusDocument | None

    @property
    def can_be_asked(self) -> bool:
        return self.state is PeerState.REACHABLE


class Elsewhere(Exception):
    """The address leads to something else, or to a peer that does not know us."""

    def __init__(self, state: PeerState, why: str) -> None:
        super().__init__(why)
        self.state = state


class PeerFollower:
    """Follows one peer."""

    def __init__(
        self, own: StatusDocument, peer: Peer, suspect_seconds: float, suspect: Callable[[str, float | None], None]
    ) -> None:
        self.peer = peer
        self.life = Life(time.monotonic(), suspect_seconds)
        self.document: StatusDocument | None = None
        self._app_id = own.facts.app_id
        self._target = f"{events.PATH}?follower={own.facts.process_id}"
        self._quiet_seconds = max(suspect_seconds, LONG_SECONDS)
        self._suspect = suspect
        self._endpoint: Endpoint | None = None
        self._silent_seconds = 0.0
        self._unreadable = ""
        self._since = (self.life.since, wall_time())

    @property
    def known(self) -> Known:
        life = self.life
        if life.since != self._since[0]:
            self._since = (life.since, wall_time() - timedelta(seconds=time.monotonic() - life.since))
        return Known(self.peer, life.state, self._since[1], life.error or self._unreadable, self.document)

    async def run(self, caller: Caller) -> None:
        attempt = 0
        while True:
            began = time.monotonic()
            try:
                async with asyncio.timeout(FIRST_EVENT_SECONDS) as deadline:
                    await self._follow(caller, deadline)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - nothing that a peer sends ends the following
                self._failed(error)
            attempt = 0 if time.monotonic() - began > LONG_SECONDS and self.life.is_watched else attempt + 1
            if not self.life.is_watched:
                attempt = max(attempt, PAUSE_UNKNOWN)
            pause = PAUSES_SECONDS[min(attempt, len(PAUSES_SECONDS) - 1)]
            jitter = random.uniform(0.8, 1.2) if attempt >= PAUSE_UNKNOWN else 1.0
            await asyncio.sleep(pause * jitter)

    def tick(self, now: float, overslept_seconds: float) -> None:
        """Judge whether it has been silent for too long."""
        self.life.overslept(overslept_seconds)
        if (why := self.life.due(now)) is not None:
            self._suspect(why, self.life.silent_seconds(now))

    async def _follow(self, caller: Caller, deadline: asyncio.Timeout) -> None:
        """Follow until the stream ends, one way or the other."""
        at = self._endpoint if self.life.is_watched else None  # a name of a dead machine may be gone
        async with asked(caller, self.peer.url, "GET", self._target, at=at) as answer:
            _check_status(answer)
            parser, is_proven = Parser(EVENT_BYTES_MAX), False
            async for part in answer.parts:
                if is_proven:
                    deadline.reschedule(time.monotonic() + self._quiet_seconds)
                    if self.life.is_watched:  # a suspected one is found again by what it says of its service
                        self.life.answered(time.monotonic(), self._silent_seconds)
                for read in parser.feed(part):
                    match read:
                        case ServerEvent("status", data):
                            if not is_proven:
                                self._prove(data)
                                is_proven, self.document, self._endpoint = True, None, answer.endpoint
                            self._change(data)
                        case ServerEvent("bye") if is_proven:
                            self.life.ended(time.monotonic())
                            return
                        case Ages() if is_proven:
                            self._age(read)
        self.life.lost(time.monotonic(), "its stream ended")

    def _prove(self, data: bytes) -> None:
        whose = events.whose(data)
        if whose is None:
            raise Elsewhere(PeerState.WRONG_ADDRESS, "the program that answers there does not say which process it is")
        if (whose.app_id, whose.process_id) != (self._app_id, self.peer.process_id):
            raise Elsewhere(
                PeerState.WRONG_ADDRESS, f"process {whose.process_id[:100]} of app {whose.app_id[:100]!r} answers there"
            )

    def _change(self, data: bytes) -> None:
        try:
            self.document, self._unreadable = events.changed(self.document, data), ""
        except (msgspec.MsgspecError, TypeError) as error:
            self.document, self._unreadable = None, f"its status cannot be read by this version: {error}"

    def _age(self, ages: Ages) -> None:
        self._silent_seconds = ages.silent_seconds
        self.life.answered(time.monotonic(), ages.silent_seconds)
        if self.document is not None:
            self.document = msgspec.structs.replace(self.document, made_at=boot_seconds() - ages.status_seconds)

    def _failed(self, error: Exception) -> None:
        now = time.monotonic()
        match error:
            case ConnectionsRefused():
                if (why := self.life.refused(now, str(error))) is not None:
                    self._suspect(why, None)
            case NotTrusted():
                self.life.elsewhere(now, PeerState.UNREACHABLE, str(error))
            case NoAnswer() | TooLarge():
                self.life.lost(now, str(error))
            case TimeoutError():
                self.life.lost(now, "it sends nothing")
            case Elsewhere():
                self.life.elsewhere(now, error.state, str(error))
            case _:
                log.error("a defect of following %s: %r", self.peer.url, error)
                self.life.lost(now, f"a defect here, which the log has: {error!r}")


def _check_status(answer: Answer) -> None:
    match answer.status:
        case 200:
            return
        case 401:
            why = "it answers 401: its token differs, or this process has only a hash of it (http.token_file)"
            raise Elsewhere(PeerState.UNREACHABLE, why)
        case 403:
            raise Elsewhere(PeerState.UNREACHABLE, "it answers 403: it asks for a certificate (http.client_ca_file)")
        case 503:
            raise NoAnswer("it answers 503: its service is silent, or it has too many readers")
        case 502 | 504:
            raise NoAnswer(f"a proxy answers {answer.status} for it: it does not reach the process")
        case status:
            raise Elsewhere(PeerState.WRONG_ADDRESS, f"the program there answers {status}")


class Peers:
    """Follows all peers of a process, and remembers those that have left the group."""

    def __init__(
        self,
        suspect_seconds: float = 3.0,
        suspect: Callable[[str, str, float | None], None] = lambda *_: None,
        caller: Caller = UNKNOWN,
    ) -> None:
        """Take `suspect`, which is called for a peer that seems to be dead: with its process id, why, and for how
        long it has been silent (None: the address refuses connections)."""
        self.caller = caller
        self._suspect_seconds = suspect_seconds
        self._suspect = suspect
        self._followers: dict[str, PeerFollower] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._dead: dict[str, tuple[float, Known]] = {}
        self._named: dict[str, datetime] = {}

    async def run(self, own: Callable[[], StatusDocument | None]) -> None:
        """Follow the peers that the `own` status names, until cancelled."""
        last = time.monotonic()
        try:
            while True:
                if (document := own()) is not None:
                    self._follow(document)
                await asyncio.sleep(TICK_SECONDS)
                now = time.monotonic()
                late_seconds, last = now - last - TICK_SECONDS, now
                for each in self._followers.values():
                    # What came while this process was blocked is not read yet.
                    each.tick(now, late_seconds if late_seconds > TICK_SECONDS else 0.0)
        finally:
            for task in self._tasks.values():
                task.cancel()

    def known(self, document: StatusDocument) -> list[Known]:
        """List what is known of each peer that `document` names, then of those that died and have left the group."""
        self._take_leave(document)
        return [self._known(each) for each in document.peers] + [each for _, each in self._dead.values()]

    def _known(self, peer: Peer) -> Known:
        follower = self._followers.get(peer.process_id)
        if follower is not None and follower.peer.url == peer.url:
            return follower.known._replace(peer=peer)
        since = self._named.setdefault(peer.process_id, wall_time())
        if not peer.url:
            return Known(peer, PeerState.NO_ADDRESS, since, "it advertises no address", None)
        is_full = len(self._followers) >= connections_max()
        full = "this process follows as many others as its limit of open files allows (ulimit -n)"
        error = full if is_full else "it has not been asked yet"
        return Known(peer, PeerState.UNREACHABLE, since, error, None)

    def _follow(self, document: StatusDocument) -> None:
        self._take_leave(document)
        for peer in document.peers:
            name = peer.process_id
            if name in self._followers:
                self._followers[name].peer = peer
            elif peer.url and len(self._followers) < connections_max():
                suspect = partial(self._suspect, name)
                follower = PeerFollower(document, peer, self._suspect_seconds, suspect)
                self._followers[name] = follower
                self._tasks[name] = asyncio.create_task(follower.run(self.caller))

    def _take_leave(self, document: StatusDocument) -> None:
        """Follow only members of the group, at their present addresses. Those that died are remembered for a while,
        unless they are back: then as another process of the same name."""
        urls = {each.process_id: each.url for each in document.peers}
        for name, follower in [*self._followers.items()]:
            if urls.get(name) != follower.peer.url:
                self._tasks.pop(name).cancel()
                del self._followers[name]
                if follower.life.state in (PeerState.DEAD, PeerState.UNREACHABLE):
                    self._dead[name] = (time.monotonic(), follower.known)
        self._named = {name: since for name, since in self._named.items() if name in urls}
        here = {each.instance_id for each in document.peers}
        for name, (at, known) in [*self._dead.items()]:
            is_old = time.monotonic() - at > DEAD_SECONDS or len(self._dead) > DEAD_MAX
            if is_old or name in urls or known.peer.instance_id in here:
                del self._dead[name]
