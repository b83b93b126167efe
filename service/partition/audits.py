"""Audits of a LIVE partition: whether its log is what was written. Each runs in a process of its own, so neither the
loop nor the interpreter of the handlers is touched."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from typing import Any

import msgspec

from snapreplay.app.load import global_name, name_of
from snapreplay.counted import counted
from snapreplay.errors import SnapreplayError
from snapreplay.service.clock import wall_time
from snapreplay.service.config.kafka_properties import TOKEN_PROVIDER, provider_shown
from snapreplay.service.config.settings import Settings
from snapreplay.service.config.table import given_in
from snapreplay.service.control.audit_run import AuditAnswer, AuditOrder, AuditRun, AuditState
from snapreplay.service.control.operation_registry import Part
from snapreplay.service.control.protocol import OnDone, OperationState
from snapreplay.service.live.pipeline import Live
from snapreplay.service.partition.drill import GivenUp, check_memory
from snapreplay.service.runtime import child_process
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.runtime.tasks import cancel_and_wait
from snapreplay.snapshots.proof.level import Level

log = logging.getLogger("snapreplay.partition")

LEFT = "the partition left LIVE"


class Audits:
    """The audits of a partition. Lives and dies with one LIVE incarnation."""

    def __init__(self, context: Context, live: Live, reporter: Reporter) -> None:
        self._context, self._live, self._reporter = context, live, reporter
        self._tasks: dict[OnDone, asyncio.Task[None]] = {}
        self._withdrawn: set[OnDone] = set()

    def ask(self, level: Level, done: Part) -> None:
        """Audit at this level, after the audits of this process that were asked for before."""
        task = self._tasks[done] = asyncio.get_running_loop().create_task(self._run(level, done))
        task.add_done_callback(lambda ended: self._ended(done, ended))

    def withdraw(self, done: OnDone) -> None:
        """Give up the audit that `done` waits for."""
        if (task := self._tasks.get(done)) is not None:
            self._withdrawn.add(done)
            task.cancel()

    async def close(self) -> None:
        """Give up those that are under way; their processes are gone then."""
        for task in tuple(self._tasks.values()):
            await cancel_and_wait(task)

    def _ended(self, done: Part, ended: asyncio.Task[None]) -> None:
        self._tasks.pop(done, None)
        self._withdrawn.discard(done)
        if ended.cancelled():  # perhaps before it began
            done(OperationState.FAILED, None, LEFT)

    async def _run(self, level: Level, done: Part) -> None:
        async with self._context.audits:
            run = AuditRun(AuditState.RUNNING, level, wall_time())
            self._reporter.note(audit=run)
            ended = msgspec.structs.replace(run, state=AuditState.GIVEN_UP, detail=LEFT)
            try:
                ended = _judged(run, await self._answer(level))
            except SnapreplayError as error:
                ended = msgspec.structs.replace(ended, detail=str(error))
            except asyncio.CancelledError:
                if done in self._withdrawn:
                    ended = msgspec.structs.replace(ended, detail="it was cancelled")
                raise
            except Exception as error:  # a defect here must not end the partition
                log.exception("partition %d: unexpected error", self._context.partition)
                ended = msgspec.structs.replace(ended, detail=repr(error))
            finally:
                self._end(msgspec.structs.replace(ended, finished_at=wall_time()))
        state = OperationState.SUCCEEDED if ended.state == AuditState.SUCCEEDED else OperationState.FAILED
        done(state, None, ended.detail, ended.findings)

    def _end(self, run: AuditRun) -> None:
        number, state = self._context.partition, AuditState(run.state)
        self._reporter.note(audit=run)
        self._context.metrics.audit_ended(state)
        if state is AuditState.FAILED:
            log.error("partition %d: the audit at level %s failed: %s", number, run.level, run.detail)
        else:
            word = state.replace("_", " ")
            log.info("partition %d: audit at level %s %s: %s", number, run.level, word, run.detail)
        self._live.audits.look()  # also a lower level may have been recorded

    async def _answer(self, level: Level) -> AuditAnswer:
        """Let a process audit, and return its answer; raise GivenUp if it has none."""
        if level is not Level.INTEGRITY:
            check_memory(self._reporter.status)
        if lacks := child_process.without_interpreter():
            raise GivenUp(f"an audit needs a Python interpreter for its process, which this program lacks ({lacks})")
        encoded, code = await _talked(msgspec.json.encode(self._order(level)))
        try:
            answer = msgspec.json.decode(encoded, type=AuditAnswer)
        except msgspec.DecodeError:
            raise GivenUp(f"the process of the audit ended without an answer: {_said(code)}") from None
        if answer.defect:
            log.error("partition %d: an audit ended with a defect:\n%s", self._context.partition, answer.defect)
            raise GivenUp(f"a defect: {answer.defect.splitlines()[-1]}")
        if answer.problem:
            raise GivenUp(answer.problem)
        return answer

    def _order(self, level: Level) -> AuditOrder:
        app, number = self._context.app, self._context.partition
        order = AuditOrder(app.app_id, number, level, _given(self._context.settings))
        if level is not Level.REPLAY:
            return order
        name = name_of(app)
        if name is None:
            raise GivenUp(
                "level replay imports the app in another process, and this app was made where none can import it: in a"
                " function, or in the file that Python was started with",
                hint="make the app in a module of its own, or let Spark replay it:"
                " `snapreplay audit FILE.py --level replay --since-last`",
            )
        return msgspec.structs.replace(order, app=name, app_version=app.version)


def _given(settings: Settings) -> dict[str, Any]:
    """Return the settings for another process, which imports the token provider by its name."""
    given = given_in(settings)
    provider = given.get("kafka", {}).get(TOKEN_PROVIDER, "")
    if isinstance(provider, str):
        return given
    name = global_name(provider, {type(provider).__module__})
    if name is None:
        raise GivenUp(
            f"an audit imports the token provider {provider_shown(provider)} in another process, and this one was made"
            " where none can import it: in a function, or in the file that Python was started with",
            hint=f"make it in a module of its own, or name what makes it: kafka.{TOKEN_PROVIDER}=module:factory",
        )
    return {**given, "kafka": {**given["kafka"], TOKEN_PROVIDER: name}}


async def _talked(order: bytes) -> tuple[bytes, int]:
    """Start the process, give it its order, and return its answer and exit code. Who is cancelled kills it."""
    process = await asyncio.create_subprocess_exec(
        *child_process.command("snapreplay.service.auditing.process"),
        str(os.getpid()),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,  # what the libraries of the app say there is no line of this log
        env=child_process.environment({**os.environ, "PYTHONHASHSEED": "0"}),
        start_new_session=True,
    )
    try:
        answer, _ = await process.communicate(order)
        return answer, process.returncode or 0
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _said(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    says = "; memory may be short" if -code == signal.SIGKILL else ""
    return f"killed by {signal.Signals(-code).name}{says}"


def _judged(run: AuditRun, answer: AuditAnswer) -> AuditRun:
    read = msgspec.structs.replace(run, first_batch=answer.first_batch, batch=answer.proven_batch)
    if answer.finding_count:
        return msgspec.structs.replace(
            read,
            state=AuditState.FAILED,
            finding_count=answer.finding_count,
            findings=answer.findings,
            detail=f"{counted(answer.finding_count, 'finding')}; {answer.findings[0]}",
        )
    lacks, said = _lacking(Level(run.level), answer), f"batches {answer.first_batch} to {answer.proven_batch} are whole"
    if answer.proven_batch is None:
        said = "nothing is wrong"
    elif answer.without_input:
        said += f"; {counted(answer.without_input, 'stretch')} not replayed, because the input was trimmed"
    if lacks:
        return msgspec.structs.replace(read, state=AuditState.GIVEN_UP, detail=f"{said}, but {lacks}")
    return msgspec.structs.replace(read, state=AuditState.SUCCEEDED, detail=said)


def _lacking(level: Level, answer: AuditAnswer) -> str:
    """Say what is not proven, or not recorded, although nothing was found; empty: all of it is."""
    if answer.proven_level is None:
        return "no batch could be proven at this level"
    if answer.not_recorded:
        return f"the proof was not recorded: {answer.not_recorded}"
    if not answer.proven_level.includes(level):
        return f"only level {answer.proven_level} is proven"
    return ""
