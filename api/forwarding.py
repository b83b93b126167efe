"""Passes requests on to the processes that own the partitions. A request that is passed on says that it is for that
process alone, so nobody passes it on again.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from snapreplay.api import problems
from snapreplay.api.fleet_views import Process
from snapreplay.api.peer_client import NO_HEADERS, Caller, NoAnswer, asked, whole
from snapreplay.service.control.protocol import Operation

FORWARD_SECONDS = 5.0
ANSWER_BYTES_MAX = 4 * 1024 * 1024
BEGUN_MAX = 1000
READS_MAX = 16  # connections, each with a file
Begun = tuple[Process, Operation]


class Forwarder:
    """Asks other processes to begin operations, and remembers those until their events tell them."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._reading = asyncio.Semaphore(READS_MAX)
        self.begun: OrderedDict[str, tuple[str, Operation]] = OrderedDict()

    async def ask(
        self,
        process: Process,
        path: str,
        body: Mapping[str, object] | None = None,
        passed_on: Mapping[str, str] = NO_HEADERS,
        method: str = "POST",
    ) -> Begun:
        """Let this process begin an operation, or cancel one. `passed_on`: headers of the request.

        Raises:
            ProblemError: it refuses, with its own reason; or it does not answer.
        """
        sent = json.dumps(body).encode() if body else b""
        try:
            async with (
                asyncio.timeout(FORWARD_SECONDS),
                asked(self._caller, process.url or "", method, f"{path}?scope=local", sent, passed_on) as answer,
            ):
                document = await whole(answer, ANSWER_BYTES_MAX)
        except TimeoutError:
            why = f"it has not answered for {FORWARD_SECONDS:.0f} s; whether it was done is not known"
            raise problems.owner_away(process, why) from None
        except NoAnswer as error:
            raise problems.owner_away(process, str(error)) from error
        if answer.status != 202:
            raise problems.passed_back(process, answer.status, document)
        try:
            operation = msgspec.json.decode(document, type=Operation)
        except msgspec.MsgspecError as error:
            raise problems.owner_away(process, f"its answer cannot be read: {error}") from error
        self.begun[operation.id] = (process.process_id, operation)
        while len(self.begun) > BEGUN_MAX:
            self.begun.popitem(last=False)
        return process, operation

    async def read(self, process: Process, target: str) -> tuple[int, bytes]:
        """Ask this process for something; return the status code and the body of its answer.

        Raises:
            ProblemError: it does not answer.
        """
        try:
            async with (
                asyncio.timeout(FORWARD_SECONDS),
                self._reading,
                asked(self._caller, process.url or "", "GET", target) as answer,
            ):
                return answer.status, await whole(answer, ANSWER_BYTES_MAX)
        except TimeoutError:
            raise problems.owner_away(process, f"it has not answered for {FORWARD_SECONDS:.0f} s") from None
        except NoAnswer as error:
            raise problems.owner_away(process, str(error)) from error

    async def ask_all(
        self, wanted: Sequence[tuple[Process, Mapping[str, object]]], path: str, passed_on: Mapping[str, str]
    ) -> tuple[list[Begun], list[problems.ProblemError]]:
        """Let each of these processes begin an operation, all at once."""

        async def one(process: Process, body: Mapping[str, object]) -> Begun | problems.ProblemError:
            try:
                return await self.ask(process, path, body, passed_on)
            except problems.ProblemError as refused:
                return refused

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(*each)) for each in wanted]
        results: list[Any] = [each.result() for each in tasks]
        refused = [each for each in results if isinstance(each, problems.ProblemError)]
        return [each for each in results if not isinstance(each, problems.ProblemError)], refused
