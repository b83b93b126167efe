"""Makes the answers of HTTP: the service's own statuses as JSON, and what several of them say together."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Response

from snapreplay.api import problems
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
from snapreplay.api.json_values import encoded, shown_value
from snapreplay.api.last_hour import LastHour
from snapreplay.api.probing import Probe as Probe  # noqa: PLC0414 - shown, too
from snapreplay.service.config.settings import SettingShown
from snapreplay.service.control.kafka_reads import (
    ChangeAt,
    DeadLetterList,
    KeyHistory,
    Looked,
    PartitionHistory,
    ReadKeyHistory,
    SavepointList,
)
from snapreplay.service.control.operation_registry import ENDED, whole
from snapreplay.service.control.operations import Operation, OperationPart, OperationState
from snapreplay.service.control.protocol import ServiceFacts
from snapreplay.service.control.restore_plan import Drill, RestoreObjective, RestorePlan
from snapreplay.service.control.state_reads import NotRead, PartRead, ReadAt, StateAnswer
from snapreplay.service.control.status import (
    SNAPSHOTS_KEPT,
    PartitionError,
    PartitionStatus,
    RecoveryStatus,
    SnapshotStatus,
    StandbyStatus,
)
from snapreplay.service.control.vocabulary import LONG_AGO, Count, Percent, Seconds, Time, one_of, said
from snapreplay.service.core.liveness import PeerState
from snapreplay.service.core.phase import Phase

JSON = "application/json"
JOIN = "+"
"""Between the ids that an operation has in several processes: so any process can tell what became of it."""
_LEFT_UNDONE = (PeerState.DEAD, PeerState.ENDED)
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
    percent: Annotated[Percent | None, said("Loading is one half, advancing the other; null: not on the way to live.")]
    ownership_doubt: Annotated[str, said("Why another process may own this live partition by now; empty: no doubt.")]
    paused_since: Annotated[Time | None, said("Nothing is processed since then; null: it is not paused.")]
    paused_reason: str
    error: PartitionError | None


class RestoreSummary(msgspec.Struct, frozen=True):
    """A summary of all partitions of the app, or of those of this process without those that were handed over."""

    partitions_by_phase: Annotated[
        dict[str, Count], said("`unknown`: without a process that can be asked.", examples=[{"live": 3, "loading": 1}])
    ]
    all_live: Annotated[bool, said("Also false while no partition is assigned.")]
    percent: Annotated[Percent | None, said("Mean, 0 for those not on the way to live; null without partitions.")]
    copies_wanted: Annotated[Count | None, said("Warm copies of all these partitions together; null: not known.")]
    copies_warm: Annotated[Count | None, said("Of those, the warm ones that can be asked; null: not known.")]


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
        str, said("Why this process cannot reach its cluster or join its group, or is throttled; or empty.")
    ]
    topics_not_read: Annotated[
        tuple[str, ...], said("A sentence for each topic that matches an input pattern but is not read.")
    ]
    summary: RestoreSummary
    partitions: tuple[Restore, ...]
    standbys: Annotated[tuple[Standby, ...], said("Warm copies of partitions of other processes, by number.")]
    processes: Annotated[tuple[Process, ...], said("The process that answers comes first.")]


class Partition(PartitionStatus, frozen=True, kw_only=True):
    """A partition, as the process that owns it, or recently owned it (`phase` is then `closed`), says."""

    process_id: ProcessId
    host: Host
    process_state: ProcessState
    age_seconds: Age
    phase: Annotated[Phase | None, said("Null: nothing is known of it.")]  # type: ignore[assignment]
    stream_time_lag_seconds: Annotated[
        float | None, said("Seconds behind the clock; negative: ahead. Null before the first record.")
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
    """The settings of this process or of all. The process that answers comes first."""

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
    """The processes of the app: the process that answers, the others of its group, and those that died lately."""

    items: tuple[Process, ...]


class AppOperationPart(OperationPart, frozen=True, kw_only=True):
    """One partition's share of an operation."""

    process_id: Annotated[str, said("Of the process that carries it out.")]
    host: Annotated[str, said("Of that process.")]


class AppOperation(Operation, frozen=True, kw_only=True):
    """An asynchronous request and its result."""

    parts: tuple[AppOperationPart, ...]
    process_id: Annotated[ProcessId, said("Of the process that carries it out; null: several do, each a part.")]
    host: Host
    age_seconds: Age


LISTED_MAX = 50
"""As many as somebody reads. A process keeps more, because a command for many partitions waits for each by its id."""


class Operations(msgspec.Struct, frozen=True):
    """The last 50 operations, newest first. Older ones are found by their ids."""

    items: tuple[AppOperation, ...]


Key = Annotated[
    Any,
    said("As a URL takes it, but a number for an int and an array for a tuple; bytes are base64.", examples=["ada"]),
]
Value = Annotated[Any, said('As JSON; bytes in it are text, or `{"base64": …}`.', examples=[{"amount": 5}])]


class StateValue(ReadAt, frozen=True, kw_only=True):
    """The value of a key in one partition, and the state that it was read from."""

    value: Value


class StateValues(msgspec.Struct, frozen=True):
    """The values of a key: one for each partition that has it."""

    store: str
    key: Annotated[str, said("As requested.", examples=["ada"])]
    items: tuple[StateValue, ...]
    read: Annotated[tuple[Count, ...], said("Partitions that were read, also those that do not have the key.")]
    not_read: Annotated[tuple[NotRead, ...], said("Partitions that may have the key, too, and could not be read.")]


class StateEntry(msgspec.Struct, frozen=True):
    """An entry of a state."""

    key: Key
    value: Value


class StateEntries(ReadAt, frozen=True, kw_only=True):
    """Entries of one partition, all of the same batch."""

    store: str
    items: tuple[StateEntry, ...]
    next_after: Annotated[str | None, said("Pass it as `after` for the next page; null: there is none.")]
    partition_count: Annotated[int, said("Of the app.")]


class ShownChange(ChangeAt, frozen=True, kw_only=True):
    """A recorded change of a key: the value after the batch."""

    value: Annotated[Value, said("Null where the key was deleted.")]
    deleted: Annotated[bool, said("Also where its store was retired, whether or not it had the key.")]


class ShownChanges(Looked, frozen=True, kw_only=True):
    """The changes of a key in one partition, newest first, as far as its log was looked at."""

    store: str
    key: Annotated[str, said("As requested.", examples=["ada"])]
    partition: Count
    partition_count: Annotated[Count, said("Of the app.")]
    items: tuple[ShownChange, ...]


SHOWN = (
    *(ServiceFacts, RestoreStatus, RestorePlans, Config),
    *(Processes, Partitions, Snapshots, Operations, Probe),
    *(StateValues, StateEntries, ShownChanges),
    *(PartitionHistory, SavepointList, DeadLetterList, LastHour),
)
"""Every answer is one of these, or part of one."""


def restore_status(covered: Covered) -> RestoreStatus:
    """Return one restore per partition, also of those that were handed over by this process, and the standbys."""
    facts, found = covered.own.facts, held(covered)
    standbys = [
        _with(Standby, each, **origin(who)) for who, document in covered.says if document for each in document.standbys
    ]
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
    status = _said(found)
    restore, now = status.restore or RecoveryStatus(), {"percent": status.restored_percent, "proof": status.proof}
    return _with(Restore, status, restore, **_about(found), **now)


def partition(found: Held, now: datetime) -> Partition:
    """Return the partition as it is shown at `now`. The age is 0 if the clock was set back."""
    status = _said(found)
    stream_time_ms = status.stream_time_ms
    age_seconds = max(0.0, (now - status.updated_at).total_seconds())
    return _with(
        Partition,
        status,
        **_about(found),
        stream_time_lag_seconds=None if stream_time_ms is None else now.timestamp() - stream_time_ms / 1000,
        progress_age_seconds=None if status.updated_at == LONG_AGO else age_seconds,
    )


def _said(found: Held) -> PartitionStatus:
    """Return its status, or one that says nothing."""
    return found.status or PartitionStatus(found.partition, Phase.CLOSED)


def _about(found: Held) -> dict[str, Any]:
    return {**origin(found.process), "phase": found.status.phase if found.status else None}


def config(covered: Covered) -> Config:
    """Return the settings of each process that has said something."""
    known = [(who, document) for who, document in covered.says if document is not None]
    return Config(tuple(ProcessConfig(**origin(who), settings=document.settings) for who, document in known))


def restore_plans(covered: Covered) -> RestorePlans:
    return RestorePlans(
        tuple(
            _with(PartitionPlan, _said(each), **_about(each), plan=_said(each).restore_plan) for each in held(covered)
        )
    )


def snapshots(says: Sequence[Says], limit: int = SNAPSHOTS_KEPT) -> Snapshots:
    """Return each snapshot once: as the process that wrote it says, which knows why it did."""
    found: dict[str, tuple[SnapshotStatus, Process]] = {}
    for who, document in says:
        for each in document.snapshots if document else ():
            if each.snapshot_id not in found or each.reason != "restored":
                found[each.snapshot_id] = (each, who)
    newest = [*found.values()]
    if len(says) > 1:
        newest.sort(key=lambda each: each[0].started_at, reverse=True)
    return Snapshots(tuple(_with(Snapshot, each, **origin(who)) for each, who in newest[:limit]))


# ---- operations


def operations(says: Sequence[Says]) -> Operations:
    """List the newest operations of these processes, newest first."""
    found = [(who, each) for who, document in says if document for each in document.operations]
    if len(says) > 1:
        found.sort(key=lambda each: each[1].id, reverse=True)
    return Operations(tuple(joined([each]) for each in found[:LISTED_MAX]))


def located(
    operation_id: str, says: Sequence[Says], begun: Mapping[str, tuple[str, Operation]]
) -> list[tuple[Process, Operation]]:
    """Find what each process has of an operation; empty: it is not known. `begun` are those that were begun so lately
    that their processes may not have reported them yet: by whom, and how they began."""
    reported = {each.id: (who, each) for who, document in says if document for each in document.operations}
    processes = {who.process_id: who for who, _ in says}
    found: list[tuple[Process, Operation]] = []
    for each in operation_id.split(JOIN):
        by, began = begun.get(each, ("", None))
        if each in reported:
            found.append(reported[each])
        elif began is not None and by in processes:
            found.append((processes[by], began))
        else:
            return []
    return found


def joined(found: Sequence[tuple[Process, Operation]]) -> AppOperation:
    """Return the operations of several processes as one. What a process left undone when it died has failed."""
    one = found[0][0] if len(found) == 1 else None
    first = found[0][1]
    parts = sorted((_part(part, by) for by, each in found for part in each.parts), key=lambda part: part.partition)
    ends = [each.finished_at for _, each in found if each.finished_at is not None]
    ages = [by.age_seconds for by, _ in found if by.age_seconds is not None]
    return AppOperation(
        JOIN.join(each.id for _, each in found),
        first.kind,
        _state(part.state for part in parts),
        first.reason,
        created_at=min(each.created_at for _, each in found),
        finished_at=max(ends) if len(ends) == len(found) else None,
        parts=tuple(parts),
        process_id=one.process_id if one else None,
        host=one.host if one else None,
        age_seconds=max(ages, default=None),
    )


def _part(part: OperationPart, by: Process) -> AppOperationPart:
    state, detail = part.state, part.detail
    if by.state in _LEFT_UNDONE and state not in ENDED:
        state, detail = OperationState.FAILED, f"process {by.process_id} on {by.host} is {by.state}: {by.last_error}"
    return AppOperationPart(part.partition, state, part.snapshot_id, detail, process_id=by.process_id, host=by.host)


def _state(parts: Iterable[str]) -> OperationState:
    states = set(parts)
    return whole(states) if states <= set(ENDED) else OperationState.RUNNING


# ---- entries of a state


def key_changes(read: ReadKeyHistory, found: KeyHistory) -> ShownChanges:
    items = [
        _with(
            ShownChange,
            each,
            deleted=each.stored is None,
            value=None if each.stored is None else shown_value(each.stored),
        )
        for each in found.changes
    ]
    return _with(ShownChanges, found, store=read.store, key=read.key, partition=read.partition, items=tuple(items))


def state_values(parts: Iterable[PartRead]) -> tuple[StateValue, ...]:
    return tuple(_with(StateValue, each.at, value=shown_value(stored)) for each in parts for _, stored in each.items)


def state_entries(store: str, answer: StateAnswer) -> StateEntries:
    (part,) = answer.parts
    return _with(
        StateEntries,
        part.at,
        store=store,
        items=tuple(StateEntry(_key(key), shown_value(stored)) for key, stored in part.items),
        next_after=part.next_after,
        partition_count=answer.partition_count,
    )


def _key(key: Any) -> Any:
    """Show a decoded key; a tuple has become a list on its way."""
    if isinstance(key, bytes):
        return base64.b64encode(key).decode()
    return [_key(part) for part in key] if isinstance(key, list | tuple) else key


def _with(shown: type[_Shown], *bases: msgspec.Struct, **more: object) -> _Shown:
    """Return what these have, a later one before an earlier one, and `more`."""
    found = {name: getattr(base, name) for base in bases for name in base.__struct_fields__}
    return shown(**{name: value for name, value in found.items() if name in shown.__struct_fields__} | more)


# ---- answers


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
    """Return OpenAPI's schemas of everything shown, by name. No field is ever left out, but for those of a problem."""
    shown = (*SHOWN, problems.Problem)
    _, found = msgspec.json.schema_components(shown, ref_template="#/components/schemas/{name}")
    for name, each in found.items():
        if "properties" in each and name != problems.Problem.__name__:
            each["required"] = sorted(each["properties"])
    return found
