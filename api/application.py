"""Everything of the HTTP process but probes: the application, and what it learns of other processes. It takes most of
the CPU of a start, so that it is imported when the process answers probes already.
"""

from __future__ import annotations

import asyncio
import gc

from snapreplay.api.app import create_app
from snapreplay.api.events import StatusEvents
from snapreplay.api.guard import Hosts, allowed_hosts
from snapreplay.api.http_process import Arguments
from snapreplay.api.last_hour import LastHour
from snapreplay.api.line import Line
from snapreplay.api.link import ServiceLink
from snapreplay.api.peer_client import Caller
from snapreplay.api.peers import Peers
from snapreplay.api.state_link import StateLink
from snapreplay.api.tls import TlsFiles
from snapreplay.api.tokens import Tokens


class Application:
    """The application in `app`, and its tasks."""

    def __init__(
        self,
        arguments: Arguments,
        line: Line,
        states: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        *,
        tls: TlsFiles,
    ) -> None:
        """Take `states`, the line for reads of states, and what the process has for its probes."""
        self._link = ServiceLink(line)
        self._states = StateLink(*states)
        self._told = StatusEvents(self._link.last)
        tokens = Tokens(arguments.token_file, needs_certificate=bool(tls.client_ca))
        caller = Caller(tokens.headers, tls.client(), has_certificate=bool(tls.certificate))
        self._peers = Peers(arguments.suspect_after_ms / 1000, self._link.suspect, caller, self._link.ended)
        self._hour = LastHour()
        self.app = create_app(
            self._link,
            Hosts(arguments.bound, allowed_hosts(arguments.allowed)),
            tokens=tokens,
            events=self._told,
            peers=self._peers,
            states=self._states,
            hour=self._hour,
        )

    async def run(self) -> None:
        """Run until the service has ended."""
        link, peers = self._link, self._peers
        runs = (link.run(), self._states.run(), self._told.run(), peers.run(lambda: link.last().document))
        tasks = [asyncio.create_task(each) for each in (*runs, self._hour.run(link.last, peers))]
        await asyncio.to_thread(self.app.openapi)  # takes a tenth of the CPU of a start; no probe waits for it
        gc.freeze()
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in ended:
            each.result()

    def end(self, *, in_good_order: bool) -> None:
        """End all streams of events."""
        self._told.end(in_good_order=in_good_order)
