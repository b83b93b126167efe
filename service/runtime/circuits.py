"""Attempts of calls to the outside: their time, how many at once, and whether any are worth it now."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import types
from collections.abc import Generator
from typing import Any

from snapreplay.app.call import AsyncCall, Call, CallRefused, error_text
from snapreplay.service.runtime.tasks import asked_to_end

log = logging.getLogger("snapreplay.calls")

FAILURES_MAX = 10
"""In a row, in a process: then the circuit opens."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 30.0
BLOCKED_SECONDS = 1.0


def pause_seconds(failures: int) -> float:
    """Return the pause after so many failures in a row, with jitter."""
    longest = min(FIRST_PAUSE_SECONDS * (1 << min(failures, 20)), LONGEST_PAUSE_SECONDS)
    return longest * random.uniform(0.5, 1)


class Circuit:
    """The attempts of one call in a process: how many at once, and whether any are worth it. After `FAILURES_MAX`
    failures in a row it is open: one attempt at a time, each after a pause. A success closes it."""

    def __init__(self, concurrency: int) -> None:
        self._places, self._trial = asyncio.Semaphore(concurrency), asyncio.Lock()
        self.failures = 0

    @property
    def is_open(self) -> bool:
        return self.failures >= FAILURES_MAX

    async def attempt(self, declared: AsyncCall[Any, Any, Any], call: Call[Any, Any]) -> object:
        """Make an attempt, when its turn has come. Raises what the function does, or TimeoutError."""
        async with self._places:
            if not self.is_open:
                return await self._counted(declared, call)
            async with self._trial:
                if self.is_open:
                    await asyncio.sleep(pause_seconds(self.failures - FAILURES_MAX + 3))
                    return await self._counted(declared, call)
            return await self._counted(declared, call)

    async def _counted(self, declared: AsyncCall[Any, Any, Any], call: Call[Any, Any]) -> object:
        try:
            result = await limited(declared, call)
        except CallRefused:
            self.failures = 0  # it has answered
            raise
        except BaseException as error:
            if not asked_to_end(error):
                self.failures += 1
                if self.failures == FAILURES_MAX:
                    log.warning(
                        "call %s failed %d times in a row: one at a time is tried now, last error: %s",
                        declared.name, FAILURES_MAX, error_text(error),
                    )  # fmt: skip
            raise
        if self.is_open:
            log.info("call %s succeeds again", declared.name)
        self.failures = 0
        return result


async def limited(declared: AsyncCall[Any, Any, Any], call: Call[Any, Any]) -> object:
    """Run the function; TimeoutError after its time, even if it does not end when it is cancelled."""
    task = asyncio.get_running_loop().create_task(_awaited(declared, call))
    try:
        await asyncio.wait([task], timeout=declared.timeout_ms / 1000)
        if task.done():
            return task.result()
    finally:
        if not task.done():
            task.cancel()
            task.add_done_callback(_noted)
    raise TimeoutError(f"no result after {declared.timeout_ms} ms")


async def _awaited(declared: AsyncCall[Any, Any, Any], call: Call[Any, Any]) -> object:
    try:
        return await _watched(declared.name, declared.function(call))
    except (SystemExit, KeyboardInterrupt) as error:
        if asked_to_end(error):
            raise
        raise RuntimeError(error_text(error)) from error  # else it would end the loop
    except asyncio.CancelledError as error:
        if asked_to_end(error):
            raise
        raise RuntimeError("CancelledError") from error


@types.coroutine
def _watched(name: str, call: Any) -> Generator[Any, Any, object]:
    """Run a coroutine, and name the call if one of its steps keeps the loop from all other work."""
    running, value, error = call.__await__(), None, None
    while True:
        began = time.monotonic()
        try:
            awaited = running.send(value) if error is None else running.throw(error)
        except StopIteration as end:
            return end.value
        except GeneratorExit as raised:
            if isinstance(error, GeneratorExit):  # it is closed, and has agreed
                raise
            raise RuntimeError("GeneratorExit") from raised
        finally:
            seconds = time.monotonic() - began
            if seconds > BLOCKED_SECONDS:
                log.warning(
                    "call %s blocked the event loop for %.1f s, and with it all partitions of this process: await what"
                    " takes long, or run it in a thread by `await asyncio.to_thread(…)`", name, seconds,
                )  # fmt: skip
        try:
            value, error = (yield awaited), None
        except BaseException as thrown:  # noqa: BLE001 - the function may handle any, such as a cancellation
            value, error = None, thrown


def _noted(done: asyncio.Future[object]) -> None:
    if not done.cancelled():
        done.exception()


class Circuits(dict[str, Circuit]):
    """The circuits of a process, by the name of the call."""

    def of(self, declared: AsyncCall[Any, Any, Any]) -> Circuit:
        found = self.get(declared.name)
        if found is None:
            found = self[declared.name] = Circuit(declared.concurrency)
        return found
