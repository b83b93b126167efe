"""Passes requests on to the processes that own the partitions. A request that is passed on says that it is for that
process alone, so it is not passed on again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeVar

import msgspec

from snapreplay.api import problems
from snapreplay.api.fleet_views import Covered, Process, held
from snapreplay.api.peer_client import NO_HEADERS, Caller, NoAnswer, asked, whole
from snapreplay.errors import PartitionNotLive
from snapreplay.service.control.operations import Command, Operation
from snapreplay.service.core.phase import Phase

FORWARD_SECONDS = 5.0
ANSWER_BYTES_MAX = 4 * 1024 * 1024
BEGUN_MAX = 1000
READS_MAX = 16  # connections, each with a file
NO_TURN = nullcontext()
Begun = tuple[Process, Operation]
T = TypeVar("T")


class Forwarder:
    """Asks other processes to begin operations, and remembers those until their events tell them."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._reading = asyncio.Semaphore(READS_MAX)
        self.begun: OrderedDict[str, tuple[str, Operation]] = OrderedDict()

    async def ask(self, process: Process, command: Command, passed_on: Mapping[str, str] = NO_HEADERS) -> Begun:
        """Let this process begin an operation, or cancel one. `passed_on`: headers of the request.

        Raises:
            ProblemError: it refuses, with its own reason; or it does not answer.
        """
        sent = msgspec.json.encode(command.body) if command.body else b""
        request = (command.method, f"{command.target}?scope=local", sent, passed_on)
        operation = await self._asked(process, Operation, *request, status=202, late="; it may or may not have done it")
        self.begun[operation.id] = (process.process_id, operation)
        while len(self.begun) > BEGUN_MAX:
            self.begun.popitem(last=False)
        return process, operation

    async def read(self, process: Process, target: str, kind: type[T]) -> T:
        """Ask this process for something.

        Raises:
            ProblemError: it refuses, with its own reason; or it does not answer.
        """
        return await self._asked(process, kind, "GET", target, turn=self._reading)

    async def _asked(
        self,
        process: Process,
        kind: type[T],
        *request: Any,
        status: int = 200,
        late: str = "",
        turn: AbstractAsyncContextManager[Any] = NO_TURN,
    ) -> T:
        """Ask once it is its `turn`. `late`: what to add to the error of a timeout."""
        if not process.can_be_asked:
            raise problems.owner_away(process, process.last_error)
        try:
            async with (
                asyncio.timeout(FORWARD_SECONDS),
                turn,
                asked(self._caller, process.url or "", *request) as answer,
            ):
                document = await whole(answer, ANSWER_BYTES_MAX)
        except TimeoutError:
            raise problems.owner_away(process, f"it has not answered for {FORWARD_SECONDS:.0f} s{late}") from None
        except NoAnswer as error:
            raise problems.owner_away(process, str(error)) from error
        if answer.status != status:
            raise problems.of_peer(process, answer.status, document)
        try:
            return msgspec.json.decode(document, type=kind)
        except msgspec.MsgspecError as error:
            raise problems.owner_away(process, f"its answer cannot be read: {error}") from error

    async def ask_all(
        self, wanted: Sequence[tuple[Process, Command]], passed_on: Mapping[str, str]
    ) -> tuple[list[Begun], list[problems.ProblemError]]:
        """Let each of these processes begin an operation, all at once."""

        async def one(process: Process, command: Command) -> Begun | problems.ProblemError:
            try:
                return await self.ask(process, command, passed_on)
            except problems.ProblemError as refused:
                return refused

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(*each)) for each in wanted]
        results: list[Any] = [each.result() for each in tasks]
        refused = [each for each in results if isinstance(each, problems.ProblemError)]
        return [each for each in results if not isinstance(each, problems.ProblemError)], refused


Share = tuple[Process, list[int]]


def shares(covered: Covered, partitions: Sequence[int] | None) -> tuple[tuple[int, ...] | None, list[Share]]:
    """Say which of these partitions are this process's matter (None: all that are live; empty: none), and which are
    that of other ones. `partitions` None: all that are live.

    Raises:
        ProblemError, PartitionNotLive: one of them is refused by what is known of it.
    """
    this, found = covered.says[0].process, {each.partition: each for each in held(covered)}
    if covered.own.facts.partition_count is None:
        raise problems.not_reached()
    wanted = sorted(set(partitions)) if partitions is not None else _live(covered)
    found_shares: dict[str, Share] = {}
    for number in wanted:
        who = (found[number].holder if number in found else None) or this
        if who != this and not who.can_be_asked:
            raise problems.owner_away(who, who.last_error)
        # One alone is refused by its owner; of several, none shall begin then.
        if who != this and len(wanted) > 1 and found[number].phase_now != Phase.LIVE:
            raise PartitionNotLive(number, f"it is {found[number].phase_now}, not live, in process {who.process_id}")
        found_shares.setdefault(who.process_id, (who, []))[1].append(number)
    _, own = found_shares.pop(this.process_id, (this, []))
    return (None if partitions is None and own else tuple(own)), list(found_shares.values())


def _live(covered: Covered) -> list[int]:
    live = [each.partition for each in held(covered) if each.phase_now == Phase.LIVE]
    if not live:
        raise problems.ProblemError(problems.NOTHING_LIVE, "no partition is live: there is nothing to do")
    return live
