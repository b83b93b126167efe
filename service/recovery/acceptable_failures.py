"""The failures of a recovery that an operator may accept, under which id, and to what effect.

The id binds an acceptance to what was seen. The same finding has the same id on every start; another gap, batch or end
of the log has another id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from snapreplay.app.ways import app_name
from snapreplay.errors import SnapreplayError
from snapreplay.service.core.refusals import (
    LogCut,
    LogDamaged,
    LogShorter,
    NoRestoreMode,
    NotInitialised,
    OffsetsShifted,
)
from snapreplay.service.core.restore_mode import RestoreMode
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.witness import IncrementsBehind
from snapreplay.service.recovery.inputs import InputReplaced, InputShorter, InputTrimmed
from snapreplay.service.recovery.mismatch import (
    CodeChanged,
    DigestMismatch,
    OutputsDiffer,
    ReplayFailed,
)
from snapreplay.service.runtime.context import Context
from snapreplay.snapshots.format.records import NO_OFFSET
from snapreplay.snapshots.log.batches import BrokenChain
from snapreplay.snapshots.log.by_replay import InputDiffers
from snapreplay.snapshots.plan import NoUsableSnapshot


class Resolution(StrEnum):
    """The way on once a finding is accepted."""

    SKIP = "the records that are gone are never processed"
    REREAD = (
        "the input is read from the point where it differs from the log that was processed, or from its start; records"
        " in it that were processed before are processed again, outputs written a second time"
    )
    AS_REPLAYED = "the state as this code replays it counts, whatever was recorded"
    KEEP_LOG = "if no owner wrote that manifest, it is disregarded and the state of the last increment counts"
    FROM_LAST = (
        "the state of the last increment that is left counts, and what was processed after it is processed again,"
        " outputs written a second time"
    )
    FROM_SNAPSHOT = "the newest whole snapshot begins a new chain, and outputs written after it are written again"


@dataclass(frozen=True)
class Finding:
    """The trouble of one partition, in a form that can be accepted."""

    id: str
    way: Resolution
    error: SnapreplayError


@dataclass(frozen=True)
class _Kind:
    """A kind of finding; `facts` names the error's facts that identify it: none that change by themselves."""

    name: str
    way: Resolution
    facts: tuple[str, ...] = ()


_REPLACED = _Kind("input-replaced", Resolution.REREAD, ("topic", "position"))
KINDS: dict[type[SnapreplayError], _Kind] = {
    InputTrimmed: _Kind("input-gap", Resolution.SKIP, ("topic", "position", "log_start_offset")),
    InputShorter: _REPLACED,
    InputReplaced: _REPLACED,
    CodeChanged: _Kind("code-changed", Resolution.AS_REPLAYED, ("recorded_version", "version")),
    OutputsDiffer: _Kind(
        "outputs-differ", Resolution.AS_REPLAYED, ("batch", "topic", "recorded", "computed")
    ),
    DigestMismatch: _Kind(
        "digest-mismatch", Resolution.FROM_SNAPSHOT, ("batch", "recorded", "computed")
    ),
    InputDiffers: _Kind("input-differs", Resolution.FROM_SNAPSHOT, ("recorded", "found")),
    ReplayFailed: _Kind("replay-failed", Resolution.FROM_SNAPSHOT, ("record_id", "batch")),
    NotInitialised: _Kind("increments-lost", Resolution.FROM_SNAPSHOT),
    LogShorter: _Kind("increments-cut", Resolution.FROM_SNAPSHOT, ("recorded",)),
    LogCut: _Kind("increments-cut", Resolution.FROM_SNAPSHOT, ("manifest_batch", "last_batch")),
    OffsetsShifted: _Kind("offsets-shifted", Resolution.FROM_SNAPSHOT, ("batch", "offset")),
    IncrementsBehind: _Kind(
        "increments-behind", Resolution.FROM_LAST, ("witness_batch", "last_batch")
    ),
    BrokenChain: _Kind("chain-broken", Resolution.FROM_SNAPSHOT, ("expected_batch", "found_batch")),
    LogDamaged: _Kind("log-damaged", Resolution.FROM_SNAPSHOT, ("topic", "partition", "offset")),
    NoRestoreMode: _Kind(
        "no-restore-mode", Resolution.FROM_SNAPSHOT, ("topic", "partition", "offset")
    ),
    NoUsableSnapshot: _Kind("no-usable-snapshot", Resolution.FROM_SNAPSHOT),
}
ALSO: dict[type[SnapreplayError], _Kind] = {
    LogCut: _Kind(
        "manifest-ahead", Resolution.KEEP_LOG, ("manifest_offset", "manifest_batch", "last_batch")
    ),
}
"""A second way to go on: a person knows which of the two is true."""


def findings_of(
    error: SnapreplayError, context: Context, last: FoundIncrement | None
) -> tuple[Finding, ...]:
    """Return one for each way to go on; none when accepting it would not help: its own hint then says what does.
    `last` is the last increment, None when there is none that can be read."""
    kinds = (KINDS.get(type(error)), ALSO.get(type(error)))
    return tuple(_finding(kind, error, context, last) for kind in kinds if kind is not None)


def _finding(
    kind: _Kind, error: SnapreplayError, context: Context, last: FoundIncrement | None
) -> Finding:
    way = kind.way
    if isinstance(error, DigestMismatch) and error.facts.get("mode") == RestoreMode.REPLAY:
        way = Resolution.AS_REPLAYED
    what = {
        "log": str(context.increments),
        "last": last.offset if last is not None else NO_OFFSET,
        **{name: str(error.facts.get(name)) for name in kind.facts},
    }
    return Finding(f"{kind.name}-{_hashed(what)}", way, error)


def fingerprint_of(context: Context, facts: Mapping[str, object]) -> str:
    """Return the end of a finding's id: what a process decides by itself has one, too."""
    what = {"log": str(context.increments), **{name: str(fact) for name, fact in facts.items()}}
    return _hashed(what)


def _hashed(what: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:8]


def command(finding: Finding, context: Context) -> str:
    """Write what an operator types; settings that decide what is found are part of it."""
    settings = context.settings
    text = (
        f"snapreplay accept {app_name(context.app)} --partition {context.partition} --finding {finding.id}"
        " --reason TEXT"
    )
    if not settings.changelog.enabled:
        text += " --set changelog.enabled=false"
    if RestoreMode(settings.restore.mode) is not RestoreMode.CHANGES:
        text += f" --set restore.mode={settings.restore.mode}"
    return text
