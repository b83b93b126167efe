"""The routes to the entries of a state."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Annotated, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Path, Query, Request, Response

from snapreplay.api import problems, views
from snapreplay.api.asking import Asking
from snapreplay.api.context import context_of, covered_by
from snapreplay.api.fleet_views import Covered, Process, Scope, find_partition
from snapreplay.api.forwarding import Forwarder
from snapreplay.api.problems import ProblemError
from snapreplay.api.views import ShownChanges, StateEntries, StateValue, StateValues
from snapreplay.service.control.kafka_reads import CHANGES_MAX, ReadKeyHistory
from snapreplay.service.control.operations import INTEGER_MAX, PARTITION_MAX
from snapreplay.service.control.state_reads import (
    ENTRIES_MAX,
    AnsweredBy,
    NotRead,
    NotReadable,
    ReadKey,
    ReadRange,
    StateAnswer,
    StateRead,
)
from snapreplay.service.core.phase import CopyState, Phase

PATH = "/api/v1/state/"
HISTORY_PATH = "/api/v1/key-history/"
"""Not below the key: `/history` may be the end of a key."""

T = TypeVar("T", StateValues, StateEntries)
_OF_A_RANGE = (
    *(problems.UNKNOWN_STORE, problems.UNKNOWN_PARTITION, problems.NOT_HERE),
    *(problems.INVALID, problems.NOT_READABLE, problems.OWNER_AWAY),
    *(problems.LATE, problems.BUSY_LINE, problems.NOT_REACHED),
)
_OF_A_KEY = (problems.NO_KEY, *_OF_A_RANGE)
_OF_A_HISTORY = (
    *(problems.UNKNOWN_STORE, problems.UNKNOWN_PARTITION, problems.INVALID),
    *(problems.NOT_READABLE, problems.LATE, problems.BUSY_LINE, problems.NOT_REACHED),
)
ROUTER = APIRouter(tags=["state"], generate_unique_id_function=attrgetter("name"))
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9a-fA-F]{2})")

Store = Annotated[str, Path(max_length=100, description="Name of a store; `default` where the state is one map.")]
Stale = Annotated[bool, Query(description="Whether a warm copy may answer where the owner is another process.")]
AskedScope = Annotated[
    Scope | None,
    Query(description="`local`: this process alone; else a partition that it does not own is read where it is."),
]
KeyText = Annotated[
    str,
    Path(description="A str as it is, an int in digits, bytes in base64, a tuple as a JSON array; percent-encoded."),
]
PrefixText = Annotated[str | None, Query(description="Keys that begin with it.")]
FromText = Annotated[str | None, Query(alias="from", description="The first key.")]
ToText = Annotated[str | None, Query(alias="to", description="Keys before this one.")]
AfterText = Annotated[str | None, Query(description="`next_after` of the previous page, for the entries after it.")]


@ROUTER.get(
    PATH + "{store}/{key:path}",
    summary="Look a key up",
    responses=views.answered(StateValues, *_OF_A_KEY, description="As of the last batch."),
)
async def get_key(
    *,
    request: Request,
    store: Store,  # noqa: ARG001 - read from the bytes of the path, as the key
    key: KeyText,  # noqa: ARG001 - the same
    partition: Annotated[
        int | None, Query(ge=0, le=PARTITION_MAX, description="If left out, all that are here are asked.")
    ] = None,
    stale: Stale = False,
    scope: AskedScope = None,
) -> Response:
    """Look a key up as of the last committed batch of its partition. Which one that is only the app knows: without
    `partition` all are asked, and the answer has each that has the key."""
    asked_store, asked_key = _raw(request)
    read = ReadKey(asked_store, asked_key, partition, stale)
    if partition is None:
        values = await _everywhere(request, read, scope)
    else:
        values = await _one(request, read, scope, StateValues, partial(_values, read))
    if not values.items:
        raise problems.key_not_found(values.read, values.not_read)
    return views.answer(values)


@ROUTER.get(
    PATH + "{store}",
    summary="List entries",
    responses=views.answered(StateEntries, *_OF_A_RANGE, description="As of the last batch."),
)
async def list_entries(
    *,
    request: Request,
    store: Store,  # noqa: ARG001 - read from the bytes of the path
    partition: Annotated[int, Query(ge=0, le=PARTITION_MAX, description="Number of a state partition.")],
    prefix: PrefixText = None,
    start: FromText = None,
    end: ToText = None,
    after: AfterText = None,
    limit: Annotated[int, Query(ge=1, le=ENTRIES_MAX, description="Entries of this answer, at most.")] = 100,
    stale: Stale = False,
    scope: AskedScope = None,
) -> Response:
    """List entries of a partition, all of the same committed batch: of an ordered map in the order of their keys, of
    another one in no order. `prefix`, `from` and `to` are for ordered maps. A later page may be of a later batch."""
    asked_store, _ = _raw(request)
    try:
        request.scope["query_string"].decode("ascii")
        unquote_to_bytes(request.scope["query_string"]).decode()
    except UnicodeDecodeError:
        raise problems.wrong("query", "it is not UTF-8, percent-encoded") from None
    read = ReadRange(asked_store, partition, prefix, start, end, after, limit, stale)
    shown = partial(views.state_entries, asked_store)
    return views.answer(await _one(request, read, scope, StateEntries, shown))


@ROUTER.get(
    HISTORY_PATH + "{store}/{key:path}",
    summary="Read the history of a key",
    responses=views.answered(ShownChanges, *_OF_A_HISTORY, description="As the log has it."),
)
async def get_key_history(
    *,
    request: Request,
    store: Store,  # noqa: ARG001 - read from the bytes of the path, as the key
    key: KeyText,  # noqa: ARG001 - the same
    partition: Annotated[int, Query(ge=0, le=PARTITION_MAX, description="Number of a state partition.")],
    limit: Annotated[int, Query(ge=1, le=CHANGES_MAX, description="Changes of this answer, at most.")] = 20,
    before: Annotated[
        int | None, Query(ge=0, le=INTEGER_MAX, description="`from_offset` of the previous answer, for older changes.")
    ] = None,
) -> Response:
    """Read from the log of a partition which batches changed a key, newest first. Any process may be asked. It reads
    for at most 5 s and 64 MiB; the answer says how far it looked."""
    read = ReadKeyHistory(*_raw(request, HISTORY_PATH), partition, limit, before)
    shown = partial(views.key_changes, read)
    return views.answer(await _source(request).key_history(read, shown))


def _raw(request: Request, path: str = PATH) -> tuple[str, str]:
    """Return store and key, read from the bytes of the path: what is not UTF-8 was replaced in what routing has."""
    parts = request.scope["raw_path"].removeprefix(path.encode()).split(b"/", 1)
    try:
        if _BROKEN_ESCAPE.search(request.scope["raw_path"]):
            raise ValueError
        store, key = [unquote_to_bytes(part).decode() for part in (*parts, b"")][:2]
    except ValueError:
        raise problems.wrong("path", "it is not UTF-8, percent-encoded; a % itself is %25") from None
    return store, key


def _source(request: Request) -> Asking:
    """Return the service, without its status: a read that is answered here needs none."""
    source: Asking = request.app.state.context[0]
    return source


async def _everywhere(request: Request, read: ReadKey, scope: Scope | None) -> StateValues:
    """Look a key up in all partitions of this process, and unless it is asked for itself alone, in all others."""
    partition_count, here = await _source(request).read(
        read, lambda answer: (answer.partition_count, _values(read, answer))
    )
    others = [number for number in range(partition_count) if number not in here.read]
    if scope is Scope.LOCAL:
        return here
    own = {each.partition: each for each in here.not_read}
    wanted = others if read.is_stale_allowed else [number for number in others if number not in own]
    found = await gather(await _asked(request, scope), wanted, is_stale_allowed=read.is_stale_allowed)
    not_read = {each.partition: own.get(each.partition, each) for each in found.not_read}
    not_read |= {number: each for number, each in own.items() if number not in found.read}
    items = newest([*here.items, *found.items])
    all_read = tuple(sorted({*here.read, *found.read}))
    return StateValues(read.store, read.key, tuple(items), all_read, tuple(not_read[n] for n in sorted(not_read)))


async def _one(
    request: Request, read: StateRead, scope: Scope | None, kind: type[T], shown: Callable[[StateAnswer], T]
) -> T:
    """Read one partition: here, or else where it is."""
    try:
        return await _source(request).read(read, shown)
    except NotReadable as error:
        is_elsewhere = error.phase is None or read.is_stale_allowed
        if scope is Scope.LOCAL or not is_elsewhere:
            raise
        asked = await _asked(request, scope)
        others = who_has(asked.covered, error.partition, is_stale_allowed=read.is_stale_allowed)
        if not others:
            raise
        return await first(asked, others, kind)


async def _asked(request: Request, scope: Scope | None) -> ForwardedRead:
    """Return the request as it is passed on. Only now the status is asked for: a read that is answered here needs
    none."""
    here = await context_of(request)
    covered = covered_by(here, scope)
    given = [each for each in request.scope["query_string"].split(b"&") if each and not each.startswith(b"scope=")]
    target = request.scope["raw_path"] + b"?" + b"&".join([*given, b"scope=local"])
    return ForwardedRead(here.forwarder, covered, target.decode())


def _values(read: ReadKey, answer: StateAnswer) -> StateValues:
    numbers = tuple(each.at.partition for each in answer.parts)
    return StateValues(read.store, read.key, views.state_values(answer.parts), numbers, answer.not_read)


# ---- reads of partitions in other processes: each is asked for itself alone, and the answers are put together


class ForwardedRead(NamedTuple):
    """A request as it is passed on, and to whom it may be; `target` with the query that it came with."""

    forwarder: Forwarder
    covered: Covered
    target: str


def who_has(covered: Covered, partition: int, *, is_stale_allowed: bool) -> list[Process]:
    """List the other processes that may be asked for a partition: its owner, then those with a warm copy."""
    this = covered.says[0].process
    known = find_partition(covered, partition)
    owner = known.holder if known else None
    found = [owner] if owner is not None and owner != this else []
    if is_stale_allowed:
        for who, told in covered.says[1:]:
            warm = [each.partition for each in told.standbys if each.state == CopyState.WARM] if told else []
            if partition in warm and who.can_be_asked and who not in found:
                found.append(who)
    return found


async def first(asked: ForwardedRead, processes: Sequence[Process], kind: type[T]) -> T:
    """Return the first answer of these processes, asked one after the other.

    Raises:
        ProblemError: of the first one, its owner, if none of them has an answer.
    """
    refused: list[ProblemError] = []
    for process in processes:
        try:
            return await asked.forwarder.read(process, asked.target, kind)
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
            not_read.append(NotRead(number, None, "no known process owns it"))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_by(asked, *share)) for share in shares.values()]
    parts = [each.result() for each in tasks]
    read = frozenset[int]().union(*(part.read for part in parts))
    not_read += [each for part in parts for each in part.not_read]
    items = newest(item for part in parts for item in part.items)
    return Gathered(tuple(items), read, tuple(each for each in not_read if each.partition not in read))


async def _by(asked: ForwardedRead, process: Process, wanted: set[int]) -> Gathered:
    """Ask one process; what it says nothing of, it has no more."""
    try:
        answer = await asked.forwarder.read(process, asked.target, StateValues)
    except ProblemError as error:
        partitions: Iterable[int] = error.members.get("partitions") or ()  # type: ignore[assignment]  # of the document
        read = frozenset(partitions)
        return Gathered((), read, tuple(_refused(asked, number, error) for number in sorted(wanted - read)))
    known = {*answer.read, *(each.partition for each in answer.not_read)}
    moved = [NotRead(n, None, f"process {process.process_id} has it no more") for n in sorted(wanted - known)]
    return Gathered(answer.items, frozenset(answer.read), (*answer.not_read, *moved))


def _refused(asked: ForwardedRead, partition: int, error: ProblemError) -> NotRead:
    """Say why a partition was not read: by its phase, if that says so. The refusal is about all that were asked."""
    known = find_partition(asked.covered, partition)
    phase = known.phase_now if known else "unknown"
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
    return item.owner_epoch, item.batch, item.answered_by == AnsweredBy.OWNER
