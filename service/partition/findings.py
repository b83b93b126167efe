"""Which failures of a recovery an operator may accept, under which id, and to what effect.

The id binds an acceptance to what was seen: the same finding has the same id on every start, another gap, another
batch, another end of the log have another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from snapreplay.service.core.road import Road
from snapreplay.service.core.search import Found
from snapreplay.service.core.stops import (
    LogDamaged,
    LogShorter,
    NoRoad,
    NotInitialised,
)
from snapreplay.service.partition.context import Context
from snapreplay.service.partition.increments import BrokenChain
from snapreplay.service.partition.inputs import InputReplaced, InputShorter, InputTrimmed
from snapreplay.service.partition.mismatch import CodeChanged, DigestMismatch, OutputsDiffer
from snapreplay.service.partition.replay import InputDiffers, ReplayFailed
from snapreplay.service.partition.starts import LogCut
from snapreplay.snapshots.errors import SnapreplayError
from snapreplay.snapshots.format.records import NO_OFFSET
from snapreplay.snapshots.plan import NoUsableSnapshot
from snapreplay.snapshots.program.ways import app_name


class Way(StrEnum):
    """How the partition goes on once a finding is accepted."""

    SKIP = "the records that are gone are never processed"
    REREAD = "the input is read from where it is another log than the one that was processed"
    AS_REPLAYED = "the state as replayed by this code counts, whatever was recorded"
    FROM_SNAPSHOT = "the newest whole snapshot is the start of a new chain, outputs written after it are written again"


@dataclass(frozen=True)
class Finding:
    """What is the matter with one partition, in a form that can be accepted."""

    id: str
    way: Way
    error: SnapreplayError


@dataclass(frozen=True)
class _Kind:
    """`facts` names those of the error that identify it: none that change while nobody does anything."""

    name: str
    way: Way
    facts: tuple[str, ...] = ()


_REPLACED = _Kind("input-replaced", Way.REREAD, ("topic", "position"))
KINDS: dict[type[SnapreplayError], _Kind] = {
    InputTrimmed: _Kind("input-gap", Way.SKIP, ("topic", "position", "log_start_offset")),
    InputShorter: _REPLACED,
    InputReplaced: _REPLACED,
    CodeChanged: _Kind("code-changed", Way.AS_REPLAYED, ("recorded_version", "version")),
    OutputsDiffer: _Kind(
        "outputs-differ", Way.AS_REPLAYED, ("batch", "topic", "recorded", "computed")
    ),
    DigestMismatch: _Kind("digest-mismatch", Way.FROM_SNAPSHOT, ("batch", "recorded", "computed")),
    InputDiffers: _Kind("input-differs", Way.FROM_SNAPSHOT, ("recorded", "found")),
    ReplayFailed: _Kind("replay-failed", Way.FROM_SNAPSHOT, ("record_id", "batch")),
    NotInitialised: _Kind("increments-lost", Way.FROM_SNAPSHOT),
    LogShorter: _Kind("increments-cut", Way.FROM_SNAPSHOT, ("recorded",)),
    LogCut: _Kind("increments-cut", Way.FROM_SNAPSHOT, ("manifest_batch", "last_batch")),
    BrokenChain: _Kind("chain-broken", Way.FROM_SNAPSHOT, ("expected_batch", "found_batch")),
    LogDamaged: _Kind("log-damaged", Way.FROM_SNAPSHOT, ("topic", "partition", "offset")),
    NoRoad: _Kind("no-road", Way.FROM_SNAPSHOT, ("topic", "partition", "offset")),
    NoUsableSnapshot: _Kind("no-usable-snapshot", Way.FROM_SNAPSHOT),
}


def finding_of(error: SnapreplayError, context: Context, last: Found | None) -> Finding | None:
    """None when accepting it would not help: its own hint then says what does. `last` is the last increment, None
    when there is none that can be read."""
    kind = KINDS.get(type(error))
    if kind is None:
        return None
    way = kind.way
    if isinstance(error, DigestMismatch) and error.facts.get("road") == Road.REPLAY:
        way = Way.AS_REPLAYED
    what = {
        "log": str(context.increments),
        "last": last.offset if last is not None else NO_OFFSET,
        **{name: str(error.facts.get(name)) for name in kind.facts},
    }
    return Finding(f"{kind.name}-{_hashed(what)}", way, error)


def fingerprint_of(context: Context, facts: Mapping[str, object]) -> str:
    """The end of a finding's id: what a process decides by itself has one, too."""
    what = {"log": str(context.increments), **{name: str(fact) for name, fact in facts.items()}}
    return _hashed(what)


def _hashed(what: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:8]


def command(finding: Finding, context: Context) -> str:
    """What an operator types; settings that decide what is found are part of it."""
    settings = context.settings
    text = (
        f"snapreplay accept {app_name(context.app)} --partition {context.partition} --finding {finding.id}"
        " --reason TEXT"
    )
    if not settings.changes:
        text += " --set changes=false"
    if Road(settings.restore.road) is not Road.CHANGES:
        text += f" --set restore.road={settings.restore.road}"
    return text
