"""The other workers of the same parent (`run --processes`): a probe is about all of them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from functools import partial

import msgspec

from snapreplay.api.line import SharedQuestion
from snapreplay.api.peer_client import Caller, NoAnswer, asked, whole
from snapreplay.service.control.framing import Check

LIVENESS = "/healthz"
ASK_SECONDS = 1.0
BYTES_MAX = 256 * 1024


def _any() -> ssl.SSLContext:
    """Trust whoever answers: the parent has reserved the ports, so nobody else can listen there."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


_CALLER = Caller(context=_any)
"""Probes need neither a token nor a certificate."""


class _Answer(msgspec.Struct):
    """The part of a probe's answer that is looked at."""

    checks: tuple[Check, ...]


class Siblings:
    """Asks the probes of the other workers. However many ask, each of them is asked once at a time."""

    def __init__(self, urls: Sequence[tuple[int, str]] = ()) -> None:
        """Take the number and the URL of each other worker; none: there are no workers."""
        self._urls = urls
        self._shared: dict[str, SharedQuestion[tuple[Check, ...]]] = {}

    async def checks(self, path: str) -> tuple[Check, ...]:
        """Return one check for each of them."""
        if not self._urls:
            return ()
        found = await self._shared.setdefault(path, SharedQuestion(partial(self._ask, path))).new()
        return found or (Check("workers", ok=path == LIVENESS, detail="their answers are late"),)

    async def _ask(self, path: str) -> tuple[Check, ...]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._one(number, url, path)) for number, url in self._urls]
        return tuple(each.result() for each in tasks)

    async def _one(self, number: int, url: str, path: str) -> Check:
        name = f"worker {number}"
        try:
            async with asyncio.timeout(ASK_SECONDS), asked(_CALLER, url, "GET", f"{path}?scope=local") as answer:
                checks = msgspec.json.decode(await whole(answer, BYTES_MAX), type=_Answer).checks
        except (TimeoutError, NoAnswer, msgspec.MsgspecError) as error:
            # The parent starts it again. To kill all would not help.
            return Check(name, path == LIVENESS, str(error) or f"no answer within {ASK_SECONDS:.0f} s")
        failing = [f"{each.name}: {each.detail}" for each in checks if not each.ok]
        return Check(name, answer.status == 200, "; ".join(failing))
