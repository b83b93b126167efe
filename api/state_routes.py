"""The routes to the entries of a state."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Annotated, TypeVar
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Path, Query, Request, Response

from snapreplay.api import state_problems, state_views, views
from snapreplay.api.action_routes import INTEGER_MAX, PARTITION_MAX
from snapreplay.api.answers import context_of
from snapreplay.api.fleet_routes import covered_by
from snapreplay.api.fleet_views import Scope
from snapreplay.api.state_forwarding import ForwardedRead, first, gather, newest, who_has
from snapreplay.api.state_views import HISTORY_PATH, PATH, StateEntries, StateValues
from snapreplay.errors import RetryableError, UsageError
from snapreplay.service.control.key_history import CHANGES_MAX, ReadKeyHistory
from snapreplay.service.control.state_reads import ENTRIES_MAX, NotReadable, ReadKey, ReadRange, StateAnswer, StateRead

T = TypeVar("T", StateValues, StateEntries)
ROUTER = APIRouter(tags=["state"], generate_unique_id_function=attrgetter("name"))
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9a-fA-F]{2})")

Store = Annotated[str, Path(max_length=100, description="Name of a store; `default` where the state is one map.")]
Stale = Annotated[bool, Query(description="Whether a warm copy may answer where the owner is another process.")]
MinBatch = Annotated[
    int, Query(ge=0, le=INTEGER_MAX, description="Wait for this batch of the partition, for at most 1.5 s.")
]
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
AfterText = Annotated[str | None, Query(description="`next_after` of the entries before: those behind it.")]


@ROUTER.get(
    PATH + "{store}/{key:path}",
    summary="Look a key up",
    responses=views.answered(state_views.StateValues, *state_problems.OF_A_KEY, description="As of the last batch."),
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
    min_batch: MinBatch = 0,
    scope: AskedScope = None,
) -> Response:
    """Look a key up as of the last committed batch of its partition. Which one that is only the app knows: without
    `partition` all are asked, and the answer has each that has the key."""
    if min_batch and partition is None:
        why = "it counts the batches of one partition: say which by `partition`"
        raise state_problems.wrong("query.min_batch", why)
    asked_store, asked_key = _raw(request)
    read = ReadKey(asked_store, asked_key, partition, stale, min_batch)
    values = await (_everywhere if partition is None else _value)(request, read, scope)
    if not values.items:
        raise state_problems.not_found(values.read, values.not_read)
    return views.answer(values)


@ROUTER.get(
    PATH + "{store}",
    summary="List entries",
    responses=views.answered(state_views.StateEntries, *state_problems.OF_A_RANGE, description="As of the last batch."),
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
    min_batch: MinBatch = 0,
    scope: AskedScope = None,
) -> Response:
    """List entries of a partition, all of the same committed batch: of an ordered map in the order of their keys, of
    another one in no order. `prefix`, `from` and `to` are for ordered maps. A later page may be of a later batch."""
    asked_store, _ = _raw(request)
    try:
        request.scope["query_string"].decode("ascii")
        unquote_to_bytes(request.scope["query_string"]).decode()
    except UnicodeDecodeError:
        raise state_problems.wrong("query", "it is not UTF-8, percent-encoded") from None
    read = ReadRange(asked_store, partition, prefix, start, end, after, limit, stale, min_batch)
    shown = partial(_entries, asked_store)
    return views.answer(await _one(request, read, scope, state_views.StateEntries, shown))


@ROUTER.get(
    HISTORY_PATH + "{store}/{key:path}",
    summary="Read how a value came to be",
    responses=views.answered(state_views.ShownChanges, *state_problems.OF_A_HISTORY, description="As the log has it."),
)
async def get_key_history(
    *,
    request: Request,
    store: Store,  # noqa: ARG001 - read from the bytes of the path, as the key
    key: KeyText,  # noqa: ARG001 - the same
    partition: Annotated[int, Query(ge=0, le=PARTITION_MAX, description="Number of a state partition.")],
    limit: Annotated[int, Query(ge=1, le=CHANGES_MAX, description="Changes of this answer, at most.")] = 20,
    before: Annotated[
        int | None, Query(ge=0, le=INTEGER_MAX, description="`from_offset` of the answer before: what is older.")
    ] = None,
) -> Response:
    """Read from the log of a partition which batches changed a key, newest first. Any process may be asked. It reads
    for at most 5 s and 64 MiB; the answer says how far it looked."""
    read = ReadKeyHistory(*_raw(request, HISTORY_PATH), partition, limit, before)
    try:
        return views.answer(state_views.changes(read, await request.app.state.states.key_history(read)))
    except (UsageError, RetryableError) as error:
        raise state_problems.of(error) from error


def _raw(request: Request, path: str = PATH) -> tuple[str, str]:
    """Return store and key, read from the bytes of the path: what is not UTF-8 was replaced in what routing has."""
    parts = request.scope["raw_path"].removeprefix(path.encode()).split(b"/", 1)
    try:
        if _BROKEN_ESCAPE.search(request.scope["raw_path"]):
            raise ValueError
        store, key = [unquote_to_bytes(part).decode() for part in (*parts, b"")][:2]
    except ValueError:
        raise state_problems.wrong("path", "it is not UTF-8, percent-encoded; a % itself is %25") from None
    return store, key


async def _value(request: Request, read: ReadKey, scope: Scope | None) -> StateValues:
    """Look a key up in one partition."""
    return await _one(request, read, scope, StateValues, partial(_values, read))


async def _everywhere(request: Request, read: ReadKey, scope: Scope | None) -> StateValues:
    """Look a key up in all partitions of this process, and unless it is asked for itself alone, in all others."""
    answer = await _read(request, read)
    here = _values(read, answer)
    others = [number for number in range(answer.partition_count) if number not in here.read]
    if scope is Scope.LOCAL:
        return here
    own = {each.partition: each for each in answer.not_read}
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
        return shown(await request.app.state.states.read(read))
    except NotReadable as error:
        is_elsewhere = error.phase is None or read.is_stale_allowed
        if scope is Scope.LOCAL or not is_elsewhere:
            raise state_problems.of(error) from error
        asked = await _asked(request, scope)
        others = who_has(asked.covered, error.partition, is_stale_allowed=read.is_stale_allowed)
        if not others:
            raise state_problems.of(error) from error
        return await first(asked, others, kind)
    except (UsageError, RetryableError) as error:
        raise state_problems.of(error) from error


async def _read(request: Request, read: StateRead) -> StateAnswer:
    try:
        answer: StateAnswer = await request.app.state.states.read(read)
    except (UsageError, RetryableError) as error:
        raise state_problems.of(error) from error
    return answer


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
    return StateValues(read.store, read.key, state_views.values(answer.parts), numbers, answer.not_read)


def _entries(store: str, answer: StateAnswer) -> StateEntries:
    return state_views.entries(store, answer.parts[0], answer.partition_count)
