"""Runs the functions of pending calls, beside the processing of a LIVE partition, and writes their answers.

A call is made once its request is committed. Its answer is a record of the call's internal topic, written outside any
transaction; the handler of the answer takes the call from those pending. What ends with this owner, or has no answer in
the log, is called again by the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from snapreplay.app.call import AsyncCall, CallRefused, Reply, error_text
from snapreplay.app.codecs import msgpack
from snapreplay.errors import SnapreplayError
from snapreplay.service.clock import time_of
from snapreplay.service.control.status import CallStatus
from snapreplay.service.core.kafka_errors import RefusedRecord
from snapreplay.service.ports import Appender, LogRecord
from snapreplay.service.runtime.circuits import Circuit, pause_seconds
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.tasks import asked_to_end
from snapreplay.state.calls import CallStore, PendingCall
from snapreplay.state.contract import CALLS_STORE, StateChanges

log = logging.getLogger("snapreplay.calls")

ANSWERS_SECONDS_MAX = 10.0
"""The answers that the owner before has written are handled first, but other inputs may be far behind."""

_encode = msgpack(Reply).encode


class _Work(Struct, frozen=True):
    """A pending call, and what has become of its attempts so far."""

    id: str
    pending: PendingCall
    failures: int = 0


class _Line(Struct):
    """The pending calls of one name, in this partition.

    Attributes:
        ready: calls that wait for an attempt.
        behind: with `ordered`, key → its calls; the first one of them is `ready`, under way or waits for another
            attempt.
    """

    declared: AsyncCall[Any, Any, Any]
    circuit: Circuit
    ready: deque[_Work] = field(default_factory=deque)
    behind: dict[bytes | None, deque[_Work]] = field(default_factory=dict)
    running: int = 0
    last_error: str = ""


class Caller:
    """The calls of one ownership, from `open` to `close`; `committed` tells it what was requested and handled."""

    def __init__(self, context: Context, store: CallStore) -> None:
        self._context, self._store = context, store
        self._lines = {
            name: _Line(declared, context.circuits.of(declared)) for name, declared in context.app.calls.items()
        }
        self._pending: dict[str, PendingCall] = {}
        self._by_name = {name: OrderedDict[str, PendingCall]() for name in context.app.calls}  # to find the oldest
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._writing = asyncio.Lock()
        self._appender: Appender | None = None
        self._waits_until: float | None = None
        self._has_begun = False
        self._is_closed = False
        self.topics = frozenset(each.topic.name for each in context.app.calls.values())

    @property
    def has_begun(self) -> bool:
        return self._has_begun

    @property
    def status(self) -> tuple[CallStatus, ...]:
        return tuple(
            CallStatus(
                *(name, len(self._by_name[name]), line.circuit.failures, line.circuit.is_open, line.last_error),
                oldest_at=self._oldest_at(name),
            )
            for name, line in sorted(self._lines.items())
        )

    def _oldest_at(self, name: str) -> datetime | None:
        """Return the time of the oldest pending call: they are kept in the order in which they were requested."""
        at_ms = next((each.at_ms for each in self._by_name[name].values()), -1)
        return time_of(at_ms) if at_ms >= 0 else None

    def open(self) -> None:
        """Take what is pending in the recovered state."""
        for each in self._store.pending():
            self._request(each.id, each.call)
        self._waits_until = asyncio.get_running_loop().time() + ANSWERS_SECONDS_MAX

    def _request(self, call_id: str, pending: PendingCall) -> None:
        self._pending[call_id] = self._by_name[pending.name][call_id] = pending

    def look(self, *, answers_read: bool) -> None:
        """Begin with the calls that were pending at the start, once the answers in the log are handled."""
        is_late = self._waits_until is not None and asyncio.get_running_loop().time() >= self._waits_until
        if self._has_begun or not (answers_read or is_late):
            return
        self._has_begun = True
        for call_id, pending in self._pending.items():
            self._add(_Work(call_id, pending))

    def committed(self, changes: StateChanges) -> None:
        """Call what a committed batch has requested, and forget what it has handled or cancelled."""
        own = changes.get(CALLS_STORE)
        if not own:
            return
        for call_id in self._store.removed(own):
            if (handled := self._pending.pop(call_id, None)) is not None:
                del self._by_name[handled.name][call_id]
        for call_id, pending in self._store.requested(own):
            self._request(call_id, pending)
            if self._has_begun:
                self._add(_Work(call_id, pending))

    async def close(self) -> None:
        """Cancel what is under way: it stays pending in the state. Bounded, never raises."""
        self._is_closed = True
        for timer in self._timers:
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._appender is not None:
            await self._appender.close()

    def _add(self, work: _Work) -> None:
        line = self._lines[work.pending.name]
        if line.declared.ordered:
            behind = line.behind.setdefault(work.pending.key, deque())
            behind.append(work)
            if len(behind) > 1:
                return
        self._make_ready(line, work)

    def _make_ready(self, line: _Line, work: _Work) -> None:
        line.ready.append(work)
        self._fill(line)

    def _fill(self, line: _Line) -> None:
        while line.ready and line.running < line.declared.concurrency and not self._is_closed:
            line.running += 1
            task = asyncio.get_running_loop().create_task(self._work(line, line.ready.popleft()))
            self._tasks.add(task)
            task.add_done_callback(lambda done: self._ended(line, done))

    def _ended(self, line: _Line, done: asyncio.Task[None]) -> None:
        self._tasks.discard(done)
        line.running -= 1
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("call %s ended with a defect", line.declared.name, exc_info=error)
        self._fill(line)

    async def _work(self, line: _Line, work: _Work) -> None:
        """Make one attempt, and write its answer, or wait for the next attempt."""
        reply = await self._reply(line, work) if work.id in self._pending else None
        if reply is None and work.id in self._pending:
            again = _Work(work.id, work.pending, work.failures + 1)
            self._later(pause_seconds(again.failures), lambda: self._make_ready(line, again))
            return
        if reply is not None:
            await self._write(line, work, reply)
        if line.declared.ordered:
            behind = line.behind[work.pending.key]
            behind.popleft()
            if behind:
                self._make_ready(line, behind[0])
            else:
                del line.behind[work.pending.key]

    async def _reply(self, line: _Line, work: _Work) -> Reply | None:
        """Make an attempt; None: another one must follow."""
        declared, attempt = line.declared, work.failures + 1
        try:
            call = declared.call_of(work.id, work.pending, attempt)
        except Exception as error:  # noqa: BLE001 - a codec that has changed may raise anything
            return declared.failed(work.id, error, attempt)
        try:
            result = await line.circuit.attempt(declared, call)
        except BaseException as error:
            if asked_to_end(error):
                raise
            line.last_error = error_text(error)
            is_last = declared.retries is not None and attempt > declared.retries
            return declared.failed(work.id, error, attempt) if is_last or isinstance(error, CallRefused) else None
        line.last_error = ""
        return declared.succeeded(work.id, result, attempt)

    async def _write(self, line: _Line, work: _Work, reply: Reply) -> None:
        """Write the answer until Kafka has it or the call is not pending any more. If Kafka refuses the time of the
        request, it gets the time of writing."""
        failures = 0
        at_ms = requested_ms = work.pending.at_ms if work.pending.at_ms >= 0 else None
        while work.id in self._pending:
            record = LogRecord(line.declared.topic.name, _encode(reply), work.pending.key, timestamp_ms=at_ms)
            try:
                async with self._writing:
                    await self._append(record)
            except SnapreplayError as error:
                line.last_error = error_text(error)
                if isinstance(error, RefusedRecord) and at_ms is not None:  # too far from the broker's time, perhaps
                    at_ms = None
                elif isinstance(error, RefusedRecord) and reply.result is not None:  # it may be too large
                    at_ms, reply = requested_ms, line.declared.failed(reply.id, error, reply.attempts)
                failures += 1
                log.warning("call %s: an answer was not written, trying again: %s", line.declared.name, error)
            else:
                return
            await asyncio.sleep(pause_seconds(failures))

    async def _append(self, record: LogRecord) -> None:
        """Append; after an error an appender is spent."""
        appender = self._appender = self._appender or await self._context.cluster.appender()
        try:
            await appender.append(record, self._context.partition)
        except BaseException:
            self._appender = None
            await appender.close()
            raise

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        if self._is_closed:
            return

        def acting() -> None:
            self._timers.discard(timer)
            act()

        timer = asyncio.get_running_loop().call_later(seconds, acting)
        self._timers.add(timer)
