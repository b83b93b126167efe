"""Reads of partitions in other processes: each is asked for itself alone, and what they say is put together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec
from pydantic import ValidationError

from snapreplay.api import problems, state_problems
from snapreplay.api.fleet_views import Covered, Process, held
from snapreplay.api.forwarding import Forwarder
from snapreplay.api.problem_kinds import URN, ProblemError, ProblemKind
from snapreplay.api.problems import Problem
from snapreplay.api.state_views import StateEntries, StateValue, StateValues
from snapreplay.service.control.state_reads import NotRead, Role
from snapreplay.service.control.status import StandbyStatus
from snapreplay.service.core.phase import CopyState, Phase

T = TypeVar("T", StateValues, StateEntries)


class ForwardedRead(NamedTuple):
    """A request as it is passed on, and to whom it may be; `target` with the query that it came with."""

    forwarder: Forwarder
    covered: Covered
    target: str

    async def by(self, process: Process, kind: type[T]) -> T:
        """Return the answer of this process.

        Raises:
            ProblemError: its own, or it cannot be asked.
        """
        if not process.can_be_asked:
            raise problems.owner_away(process, process.last_error)
        status, document = await self.forwarder.read(process, self.target)
        try:
            if status == 200:
                return msgspec.json.decode(document, type=kind)
            problem = Problem.model_validate_json(document)
        except (msgspec.MsgspecError, ValidationError):
            raise problems.owner_away(process, f"it answers {status}, which cannot be read") from None
        if not problem.type.startswith(URN):
            raise problems.owner_away(process, "it is of a version that has no reads")
        members = problem.model_dump(exclude_none=True, exclude={"type", "title", "status", "detail", "instance"})
        kind_of = ProblemKind(problem.type.removeprefix(URN), problem.status, problem.title)
        if kind_of.name == problems.NOT_HERE.name:  # it has just moved
            kind_of = state_problems.NOT_READABLE
        headers = {"Retry-After": "1"} if kind_of.status == 503 else {}
        raise ProblemError(kind_of, f"process {process.process_id}: {problem.detail}", headers=headers, **members)


def who_has(covered: Covered, partition: int, *, is_stale_allowed: bool) -> list[Process]:
    """List the other processes that may be asked for a partition: its owner, then those with a warm copy."""
    this = covered.says[0].process
    owner = next((each.holder for each in held(covered) if each.partition == partition), None)
    found = [owner] if owner is not None and owner != this else []
    if is_stale_allowed:
        copies = [who for who, told in covered.says[1:] if told and _is_warm(told.standbys, partition)]
        found += [who for who in copies if who.can_be_asked and who not in found]
    return found


def _is_warm(standbys: Iterable[StandbyStatus], partition: int) -> bool:
    return any((each.partition, each.state) == (partition, CopyState.WARM) for each in standbys)


async def first(asked: ForwardedRead, processes: Sequence[Process], kind: type[T]) -> T:
    """Return the first answer of these processes, asked one after the other.

    Raises:
        ProblemError: of the first one, its owner, if none of them has an answer.
    """
    refused: list[ProblemError] = []
    for process in processes:
        try:
            return await asked.by(process, kind)
        except ProblemError as error:
            if error.kind.status != 503:
                raise
            refused.append(error)
    raise refused[0]


class Gathered(NamedTuple):
    """The answers of several processes: the values of a key, the partitions that were read, and those that were not."""

    items: tuple[StateValue, ...]
    read: frozenset[int]
    not_read: tuple[NotRead, ...]


async def gather(asked: ForwardedRead, partitions: Iterable[int], *, is_stale_allowed: bool) -> Gathered:
    """Ask those who have these partitions for a key, all at once."""
    shares: dict[str, tuple[Process, set[int]]] = {}
    not_read: list[NotRead] = []
    for number in partitions:
        found = who_has(asked.covered, number, is_stale_allowed=is_stale_allowed)
        process = next((each for each in found if each.can_be_asked), None)
        if process is not None:
            shares.setdefault(process.process_id, (process, set()))[1].add(number)
        elif found:
            not_read.append(NotRead(number, None, f"process {found[0].process_id} owns it, and cannot be asked"))
        else:
            not_read.append(NotRead(number, None, "nobody is known to own it"))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_one(asked, *share)) for share in shares.values()]
    parts = [each.result() for each in tasks]
    read = frozenset[int]().union(*(part.read for part in parts))
    not_read += [each for part in parts for each in part.not_read]
    items = newest(item for part in parts for item in part.items)
    return Gathered(tuple(items), read, tuple(each for each in not_read if each.partition not in read))


async def _one(asked: ForwardedRead, process: Process, wanted: set[int]) -> Gathered:
    """Ask one process; what it says nothing of, it has no more."""
    try:
        answer = await asked.by(process, StateValues)
    except ProblemError as error:
        told: Iterable[int] = error.members.get("partitions") or ()  # type: ignore[assignment]  # of the document
        read = frozenset(told)
        return Gathered((), read, tuple(_refused(asked, number, error) for number in sorted(wanted - read)))
    known = {*answer.read, *(each.partition for each in answer.not_read)}
    moved = [NotRead(n, None, f"process {process.process_id} has it no more") for n in sorted(wanted - known)]
    return Gathered(answer.items, frozenset(answer.read), (*answer.not_read, *moved))


def _refused(asked: ForwardedRead, partition: int, error: ProblemError) -> NotRead:
    """Say why a partition was not read: by its phase, if that says so. The refusal is about all that were asked."""
    phase = next((each.phase_now for each in held(asked.covered) if each.partition == partition), "unknown")
    if phase in (Phase.LIVE, "unknown"):
        return NotRead(partition, None, error.detail)
    return NotRead(partition, phase, f"it is {phase}")


def newest(items: Iterable[StateValue]) -> list[StateValue]:
    """List one value of each partition: during a move two processes may have it."""
    best: dict[int, StateValue] = {}
    for item in items:
        known = best.get(item.partition)
        if known is None or _rank(item) > _rank(known):
            best[item.partition] = item
    return [best[number] for number in sorted(best)]


def _rank(item: StateValue) -> tuple[int, int, bool]:
    return item.owner_epoch, item.batch, item.answered_by == Role.OWNER
