"""The data that the logs hold now of what a recovery would need. Asked while a partition is LIVE, and before a
state in memory is dropped."""

from __future__ import annotations

from collections.abc import MutableMapping

from snapreplay.errors import StopError
from snapreplay.service.core.recoverability import Seen, start_of
from snapreplay.service.ports import Reader
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.snapshots import UNUSABLE, load_manifest
from snapreplay.snapshots.format.records import Increment, Pointer
from snapreplay.snapshots.plan import FromGenesis, LogStarts

Pointed = MutableMapping[str, dict[str, int]]
"""Input positions of snapshots, by id."""


async def way_back(
    context: Context,
    reader: Reader,
    last: Increment,
    last_offset: int,
    starts: LogStarts,
    pointed: Pointed,
    *,
    by_replay: bool,
) -> Seen:
    """Look at the logs, and read the manifest that a recovery would start from: a pointer whose target is gone leads
    nowhere.

    Args:
        reader: of all records, also those that are not committed.
        pointed: what is known from an earlier look; kept up to date.

    Raises:
        Unreachable, ReadStalled: it could not be found out.
    """
    known = {pointer.snapshot_id for pointer in last.pointers}
    for gone in set(pointed) - known:
        del pointed[gone]
    unusable: dict[str, str] = {}
    for pointer in last.pointers if by_replay else ():
        if pointer.snapshot_id not in pointed:
            await _read(context, reader, pointer, pointed, unusable)
    while True:
        seen = Seen(last, last_offset, starts, dict(pointed), by_replay, dict(unusable))
        try:
            start = start_of(seen)
        except StopError:
            return seen
        if isinstance(start, FromGenesis):
            return seen
        if await _read(context, reader, start.pointer, pointed, unusable):
            return seen


async def _read(
    context: Context,
    reader: Reader,
    pointer: Pointer,
    pointed: Pointed,
    unusable: MutableMapping[str, str],
) -> bool:
    """Say whether the manifest is where the pointer says. A log that lost its end has lost it, too."""
    try:
        manifest = await load_manifest(reader, context.snapshots, pointer)
    except UNUSABLE as error:
        unusable[pointer.snapshot_id] = error.message
        return False
    pointed[pointer.snapshot_id] = manifest.positions
    return True
