"""The routes to the entries of a state."""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Annotated
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Path, Query, Request, Response

from snapreplay.api import state_problems, state_views, views
from snapreplay.errors import RetryableError, UsageError
from snapreplay.service.control.state_reads import ENTRIES_MAX, NotRead, ReadKey, ReadRange, StateAnswer, StateRead

ROUTER = APIRouter(tags=["state"], generate_unique_id_function=attrgetter("name"))
PATH = "/api/v1/state/"
TEXT_CHARS_MAX = 65_536
PARTITION_MAX = 2**31 - 1
BATCH_MAX = 2**53 - 1
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9a-fA-F]{2})")

Store = Annotated[str, Path(max_length=100, description="Name of a store; `default` where the state is one map.")]
Stale = Annotated[bool, Query(description="Whether a warm copy may answer where the owner is another process.")]
MinBatch = Annotated[
    int, Query(ge=0, le=BATCH_MAX, description="Wait for this batch of the partition, for at most 1.5 s.")
]
KeyText = Annotated[
    str,
    Path(
        max_length=TEXT_CHARS_MAX,
        description="A str as it is, an int in digits, bytes in base64, a tuple as a JSON array; percent-encoded.",
    ),
]
PrefixText = Annotated[str | None, Query(max_length=TEXT_CHARS_MAX, description="Keys that begin with it.")]
FromText = Annotated[str | None, Query(alias="from", max_length=TEXT_CHARS_MAX, description="The first key.")]
ToText = Annotated[str | None, Query(alias="to", max_length=TEXT_CHARS_MAX, description="Keys before this one.")]
AfterText = Annotated[
    str | None, Query(max_length=TEXT_CHARS_MAX, description="`next_after` of the entries before: those behind it.")
]


def owns(path: str) -> bool:
    """Say whether it is a path to entries: its answer is never given again."""
    return path.startswith(PATH)


@ROUTER.get(
    PATH + "{store}/{key:path}",
    summary="Look a key up",
    responses=views.answered(state_views.StateValues, *state_problems.OF_A_KEY, description="As of the last batch."),
)
async def get_key(
    *,
    request: Request,
    store: Store,  # noqa: ARG001 - read from the bytes of the path, as the key
    key: KeyText,  # noqa: ARG001
    partition: Annotated[
        int | None, Query(ge=0, le=PARTITION_MAX, description="If left out, all that are here are asked.")
    ] = None,
    stale: Stale = False,
    min_batch: MinBatch = 0,
) -> Response:
    """Look a key up as of the last committed batch of its partition. Which one that is only the app knows: without
    `partition` all are asked, and the answer has each that has the key."""
    if min_batch and partition is None:
        why = "it counts the batches of one partition: say which by `partition`"
        raise state_problems.wrong("query.min_batch", why)
    asked_store, asked_key = _raw(request)
    answer = await _read(request, ReadKey(asked_store, asked_key, partition, stale, min_batch))
    not_read = [*answer.not_read, *_elsewhere(answer)] if partition is None else []
    if not any(each.items for each in answer.parts):
        raise state_problems.not_found(answer.parts, not_read)
    return views.answer(state_views.values(asked_store, answer.parts, not_read))


@ROUTER.get(
    PATH + "{store}",
    summary="List entries",
    responses=views.answered(state_views.StateEntries, *state_problems.OF_A_RANGE, description="As of the last batch."),
)
async def list_entries(  # noqa: PLR0913 - a part of the request each
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
    answer = await _read(request, read)
    return views.answer(state_views.entries(asked_store, answer.parts[0], answer.partition_count))


def _raw(request: Request) -> tuple[str, str]:
    """Return store and key, read from the bytes of the path: what is not UTF-8 was replaced in what routing has."""
    parts = request.scope["raw_path"].removeprefix(PATH.encode()).split(b"/", 1)
    try:
        if _BROKEN_ESCAPE.search(request.scope["raw_path"]):
            raise ValueError
        store, key = [unquote_to_bytes(part).decode() for part in (*parts, b"")][:2]
    except ValueError:
        raise state_problems.wrong("path", "it is not UTF-8, percent-encoded; a % itself is %25") from None
    return store, key


async def _read(request: Request, read: StateRead) -> StateAnswer:
    try:
        answer: StateAnswer = await request.app.state.states.read(read)
    except (UsageError, RetryableError) as error:
        raise state_problems.of(error) from error
    return answer


def _elsewhere(answer: StateAnswer) -> list[NotRead]:
    """List the partitions that are not here."""
    here = {each.at.partition for each in answer.parts} | {each.partition for each in answer.not_read}
    others = sorted(set(range(answer.partition_count)) - here)
    return [NotRead(number, None, "another process owns it, or nobody yet") for number in others]
