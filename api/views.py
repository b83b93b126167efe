"""Makes the answers of HTTP: the service's own statuses as JSON, and what several of them say together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Response

from snapreplay.api import problems, state_views
from snapreplay.api.fleet_views import (
    Age,
    Covered,
    Held,
    Host,
    Process,
    ProcessId,
    ProcessState,
    Says,
    Scope,
    held,
    origin,
)
from snapreplay.api.json_values import encoded
from snapreplay.api.last_hour import LastHour
from snapreplay.api.operation_views import AppOperation, Operations
from snapreplay.api.probing import Probe as Probe  # noqa: PLC0414 - shown, too
from snapreplay.service.config.settings import SettingShown
from snapreplay.service.control.histories import PartitionHistory
from snapreplay.service.control.lists import DeadLetterList, SavepointList
from snapreplay.service.control.protocol import ServiceFacts
from snapreplay.service.control.restore_plan import Drill, RestoreObjective, RestorePlan
from snapreplay.service.control.status import (
    SNAPSHOTS_KEPT,
    PartitionError,
    PartitionStatus,
    RecoveryStatus,
    SnapshotStatus,
    StandbyStatus,
)
from snapreplay.service.control.vocabulary import LONG_AGO, Count, Percent, Seconds, Time, one_of, said
from snapreplay.service.core.phase import Phase

JSON = "application/json"
_Shown = TypeVar("_Shown", bound=msgspec.Struct)


class Restore(RecoveryStatus, frozen=True, kw_only=True):
    """The running or last recovery of one partition. What is null is not known (yet)."""

    partition: Count
    process_id: ProcessId
    host: Host
    process_state: ProcessState
    age_seconds: Age
    phase: Phase | None
    owner_epoch: Count | None
    percent: Annotated[
        Percent | None,
        said(
            "Progress towards live: loading is one half, advancing the other. Null: not on the way to live"
            " (failed, fenced, closed)."
        ),
    ]
    ownership_doubt: Annotated[str, said("Why another process may own this live partition by now; empty: no doubt.")]
    paused_since: Annotated[Time | None, said("Nothing is processed since then; null: it is not paused.")]
    paused_reason: str
    error: PartitionError | None


class RestoreSummary(msgspec.Struct, frozen=True):
    """A summary of all partitions of the app, or of those of this process without those that were handed over."""

    partitions_by_phase: Annotated[
        dict[str, Count],
        said(
            "Only phases with partitions. `unknown`: those that no process is known to have, or one that cannot be"
            " asked now.",
            examples=[{"live": 3, "loading": 1}],
        ),
    ]
    all_live: Annotated[bool, said("Also false while no partition is assigned.")]
    percent: Annotated[
        Percent | None,
        said("Mean of the partitions, 0 for those that are not on the way to live; null without partitions."),
    ]
    copies_wanted: Annotated[Count | None, said("Warm copies of all these partitions together; null: not known.")]
    copies_warm: Annotated[
        Count | None, said("Of those, the ones that are warm and can be asked; null: one process does not know it.")
    ]


class Standby(StandbyStatus, frozen=True, kw_only=True):
    """A warm copy of a partition that another process owns. What is null is not known (yet)."""

    process_id: ProcessId
    host: Host
    process_state: ProcessState
    age_seconds: Age


class RestoreStatus(msgspec.Struct, frozen=True):
    """The way of every partition to live, and how far it is."""

    app_id: str
    instance_id: Annotated[str, said("Of the process that answers.")]
    scope: Annotated[str, one_of(*Scope)]
    waiting_for: Annotated[str, said("What a new app waits for before it begins, with the command; or empty.")]
    trouble: Annotated[
        str, said("Why the process that answers cannot reach its cluster, join its group, or is throttled; or empty.")
    ]
    topics_not_read: Annotated[
        tuple[str, ...], said("A sentence for each topic that matches a pattern of the inputs and is not read.")
    ]
    summary: RestoreSummary
    partitions: tuple[Restore, ...]
    standbys: Annotated[tuple[Standby, ...], said("Warm copies of partitions of other processes, by number.")]
    processes: Annotated[tuple[Process, ...], said("The one that answers comes first.")]


class Partition(PartitionStatus, frozen=True, kw_only=True):
    """A partition, as the process that owns it, or recently owned it (`phase` is then `closed`), says."""

    process_id: ProcessId
    host: Host
    process_state: ProcessState
    age_seconds: Age
    phase: Annotated[Phase | None, said("Null: nothing is known of it.")]  # type: ignore[assignment]
    stream_time_lag_seconds: Annotated[
        float | None,
        said(
            "How far stream time is behind the clock of this process; negative: ahead of it. Null before"
            " the first record."
        ),
    ]
    progress_age_seconds: Annotated[
        Seconds | None, said("Since the last progress, by the clocks of both processes; null: not known.")
    ]


class Partitions(msgspec.Struct, frozen=True):
    """The partitions of this process or of the app, by number."""

    items: tuple[Partition, ...]


class PartitionPlan(msgspec.Struct, frozen=True):
    """The restore plan of a partition, and whether it could be restored at all."""

    partition: Count
    process_id: ProcessId
    host: Host
    process_state: ProcessState
    age_seconds: Age
    phase: Phase | None
    recoverable: bool | None
    unrecoverable_reason: str
    objective: Annotated[RestoreObjective | None, said("Null: it is not live, or none is set.")]
    drill: Annotated[Drill | None, said("The last one of its process.")]
    plan: Annotated[RestorePlan | None, said("Null: it is not live, or for less than a minute.")]


class RestorePlans(msgspec.Struct, frozen=True):
    """The restore plans of the partitions of this process or of the app, by number."""

    items: tuple[PartitionPlan, ...]


class ProcessConfig(msgspec.Struct, frozen=True):
    """The settings that a process uses, by name."""

    process_id: ProcessId
    host: Host
    process_state: ProcessState
    age_seconds: Age
    settings: tuple[SettingShown, ...]


class Config(msgspec.Struct, frozen=True):
    """The settings of this process or of all, the one that answers first."""

    items: tuple[ProcessConfig, ...]


class Snapshot(SnapshotStatus, frozen=True, kw_only=True):
    """A full snapshot. It exists when its state is `pointed`."""

    process_id: ProcessId
    host: Host
    process_state: ProcessState
    age_seconds: Age


class Snapshots(msgspec.Struct, frozen=True):
    """The full snapshots that this process wrote or used, or those of the app, newest first, at most 500."""

    items: tuple[Snapshot, ...]


class Processes(msgspec.Struct, frozen=True):
    """The processes of the app: the one that answers, the others of its group, and those that died lately."""

    items: tuple[Process, ...]


SHOWN = (
    *(ServiceFacts, RestoreStatus, RestorePlans, Config),
    *(Processes, Partitions, Snapshots, Operations, Probe),
    *(state_views.StateValues, state_views.StateEntries, state_views.ShownChanges),
    *(PartitionHistory, SavepointList, DeadLetterList, LastHour),
)
"""Every answer is one of these, or part of one."""


def restore_status(covered: Covered) -> RestoreStatus:
    """Return one restore per partition, also of those that were handed over by this process, and the standbys."""
    facts, found = covered.own.facts, held(covered)
    standbys = [_with(each, Standby, **origin(who)) for who, told in covered.says if told for each in told.standbys]
    is_whole = covered.scope is Scope.APP
    return RestoreStatus(
        app_id=facts.app_id,
        instance_id=facts.instance_id,
        scope=covered.scope,
        waiting_for=facts.waiting_for,
        trouble=facts.trouble,
        topics_not_read=facts.topics_not_read,
        summary=_summary([each for each in found if is_whole or each.phase_now != Phase.CLOSED], covered),
        partitions=tuple(_restore(each) for each in found),
        standbys=tuple(sorted(standbys, key=lambda each: each.partition)),
        processes=tuple(each.process for each in covered.says),
    )


def _summary(found: Sequence[Held], covered: Covered) -> RestoreSummary:
    phases = Counter(each.phase_now for each in found)
    percents = [
        each.status.restored_percent or 0.0 if each.status and each.phase_now != "unknown" else 0.0 for each in found
    ]
    return RestoreSummary(
        partitions_by_phase=dict(phases),
        all_live=bool(found) and phases[Phase.LIVE] == len(found),
        percent=sum(percents) / len(percents) if percents else None,
        copies_wanted=None if covered.own.copies is None else covered.own.copies.wanted * len(found),
        copies_warm=covered.copies_warm,
    )


def _restore(found: Held) -> Restore:
    status = found.status
    return _with(
        status.restore if status and status.restore else RecoveryStatus(),
        Restore,
        partition=found.partition,
        **origin(found.process),
        phase=status.phase if status else None,
        owner_epoch=status.owner_epoch if status else None,
        percent=status.restored_percent if status else None,
        ownership_doubt=status.ownership_doubt if status else "",
        proof=status.proof if status else None,
        paused_since=status.paused_since if status else None,
        paused_reason=status.paused_reason if status else "",
        error=status.error if status else None,
    )


def partition(found: Held, now: datetime) -> Partition:
    """Return the partition as it is shown at `now`. The age is 0 if the clock was set back."""
    status = found.status or PartitionStatus(found.partition, Phase.ASSIGNED)
    stream_time_ms = status.stream_time_ms
    age_seconds = max(0.0, (now - status.updated_at).total_seconds())
    return _with(
        status,
        Partition,
        **origin(found.process),
        phase=found.status.phase if found.status else None,
        stream_time_lag_seconds=None if stream_time_ms is None else now.timestamp() - stream_time_ms / 1000,
        progress_age_seconds=None if status.updated_at == LONG_AGO else age_seconds,
    )


def config(covered: Covered) -> Config:
    """Return the settings of each process that has said something."""
    told = [(who, document) for who, document in covered.says if document is not None]
    return Config(tuple(ProcessConfig(**origin(who), settings=document.settings) for who, document in told))


def restore_plans(covered: Covered) -> RestorePlans:
    return RestorePlans(
        tuple(
            PartitionPlan(
                partition=each.partition,
                **origin(each.process),
                phase=each.status.phase if each.status else None,
                recoverable=each.status.recoverable if each.status else None,
                unrecoverable_reason=each.status.unrecoverable_reason if each.status else "",
                objective=each.status.objective if each.status else None,
                drill=each.status.drill if each.status else None,
                plan=each.status.restore_plan if each.status else None,
            )
            for each in held(covered)
        )
    )


def snapshots(says: Sequence[Says], limit: int = SNAPSHOTS_KEPT) -> Snapshots:
    """Return each snapshot once: as the process that wrote it says, which knows why it did."""
    found: dict[str, tuple[SnapshotStatus, Process]] = {}
    for who, told in says:
        for each in told.snapshots if told else ():
            if each.snapshot_id not in found or each.reason != "restored":
                found[each.snapshot_id] = (each, who)
    newest = [*found.values()]
    if len(says) > 1:
        newest.sort(key=lambda each: each[0].started_at, reverse=True)
    return Snapshots(tuple(_with(each, Snapshot, **origin(who)) for each, who in newest[:limit]))


def _with(base: msgspec.Struct, shown: type[_Shown], **more: object) -> _Shown:
    return shown(**{name: getattr(base, name) for name in base.__struct_fields__} | more)


def answer(shown: msgspec.Struct, status_code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return the JSON of one of `SHOWN`, or of a part of one."""
    return Response(encoded(shown), status_code, headers, media_type=JSON)


def accepted(operation: AppOperation, path: str) -> Response:
    """Return the operation; the headers say where to follow it. `path`: below which the API is."""
    location = f"{path}/api/v1/operations/{operation.id}"
    return answer(operation, 202, {"Location": location, "Retry-After": "1"})


def documented(shown: type[msgspec.Struct], description: str) -> dict[str, Any]:
    """Return what OpenAPI says of a response with this JSON."""
    schema = {"$ref": f"#/components/schemas/{shown.__name__}"}
    return {"description": description, "content": {JSON: {"schema": schema}}}


def answered(
    shown: type[msgspec.Struct], *refused: problems.ProblemKind, description: str = "As it is now."
) -> dict[int | str, dict[str, Any]]:
    """Return the `responses=` of a route that answers with this JSON, or refuses."""
    return {200: documented(shown, description), **problems.documented(*refused)}


def begun(*refused: problems.ProblemKind) -> dict[int | str, dict[str, Any]]:
    """Return the `responses=` of a route that answers with `accepted`, or refuses."""
    headers = {
        "Location": {"description": "Path of the operation.", "schema": {"type": "string"}},
        **problems.RETRY_AFTER,
    }
    accepted = documented(AppOperation, "Accepted: follow the operation.") | {"headers": headers}
    return {202: accepted, **problems.documented(*problems.OF_A_POST, *refused)}


def schemas() -> dict[str, Any]:
    """Return OpenAPI's schemas of everything shown, by name. No field is ever left out."""
    _, found = msgspec.json.schema_components(SHOWN, ref_template="#/components/schemas/{name}")
    for each in found.values():
        if "properties" in each:
            each["required"] = sorted(each["properties"])
    return found
