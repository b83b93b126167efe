"""All routes: the state of every partition, full snapshots on demand and the operations that write them, probes,
metrics and facts.

Handlers are `async` and only ask a `StatusSource`. Nothing here may block, because the same loop answers probes.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder
from pydantic import BeforeValidator, Field

from snapreplay.api import (
    action_routes,
    operation_routes,
    probing,
    problems,
    savepoint_routes,
    state_problems,
    state_routes,
    views,
)
from snapreplay.api.action_routes import (
    PARTITION_MAX,
    PartitionNumber,
    PathPartition,
    Pause,
    begun_by_owners,
    begun_here,
    missing,
    whole,
)
from snapreplay.api.answers import ApiContext, Here, Keyed
from snapreplay.api.fleet_routes import ROUTER, Covers
from snapreplay.api.fleet_views import Covered, held
from snapreplay.api.operation_views import joined
from snapreplay.api.owners import find_partition
from snapreplay.api.pages import AFTER, cut
from snapreplay.api.probing import Probing
from snapreplay.errors import RetryableError, UsageError
from snapreplay.service.control.metrics import DocumentCollector
from snapreplay.service.control.partition_history import PartitionHistory
from snapreplay.service.control.protocol import Check, ServiceFacts, SetDrained, TriggerSnapshot
from snapreplay.service.control.snapshots_seen import SNAPSHOTS_KEPT

_partitions, _snapshots, _process = (
    APIRouter(tags=[tag], generate_unique_id_function=attrgetter("name"))
    for tag in ("partitions", "snapshots", "process")
)
ROUTERS = (
    *(
        _partitions,
        action_routes.ROUTER,
        state_routes.ROUTER,
        _snapshots,
        operation_routes.ROUTER,
        savepoint_routes.ROUTER,
        ROUTER,
        _process,
    ),
)

# ---- what is taken

PARTITIONS_MAX = 10_000


class SnapshotRequest(problems.Model):
    """The partitions to write a full snapshot of, and why."""

    partitions: Annotated[
        list[Annotated[PartitionNumber, BeforeValidator(whole)]] | None,
        Field(min_length=1, max_length=10_000, description="If left out: all live partitions."),
    ] = None
    reason: Annotated[str, Field(max_length=500, description="Kept with the operation and the snapshot.")] = ""


_REQUESTS = {
    "all": {"summary": "All live partitions", "value": {}},
    "some": {"summary": "Two partitions, with a reason", "value": {"partitions": [0, 2], "reason": "before deploy 42"}},
}

_MAINTENANCE = {"one": {"summary": "With a reason", "value": {"reason": "kernel update"}}}

# ---- partitions


@_partitions.get("/restore-status", responses=views.answered(views.RestoreStatus, problems.INVALID))
async def restore_status(covered: Covers) -> Response:
    """Tell the running or last recovery of every partition: phase, snapshot, mode, progress, seconds per phase,
    proof. It also answers before any partition is assigned."""
    return views.answer(views.restore_status(covered))


@_partitions.get("/api/v1/restore/plan", responses=views.answered(views.RestorePlans, problems.INVALID))
async def restore_plan(covered: Covers) -> Response:
    """Tell what a recovery of every partition would do now, before it is needed: the snapshot, what it would bring
    forward, the seconds by measured rates, each fallback, and what is left of the inputs until retention breaks it."""
    return views.answer(views.restore_plans(covered))


@_partitions.get(
    "/api/v1/partitions", responses=views.answered(views.Partitions, problems.UNKNOWN_AFTER, problems.INVALID)
)
async def list_partitions(
    here: Here,
    covered: Covers,
    limit: Annotated[int, Query(ge=1, le=PARTITIONS_MAX, description="Partitions of this answer, at most.")] = (
        PARTITIONS_MAX
    ),
    after: Annotated[int | None, Query(ge=0, le=PARTITION_MAX, description=AFTER)] = None,
) -> Response:
    """List all partitions, or those that this process owns or recently owned, ordered by number."""
    page, next_after = cut(held(covered), attrgetter("partition"), after, limit)
    return views.answer(views.Partitions(tuple(views.partition(each, here.now()) for each in page), next_after))


@_partitions.get(
    "/api/v1/partitions/{partition}",
    responses=views.answered(
        views.Partition, problems.UNKNOWN_PARTITION, problems.NOT_HERE, problems.INVALID, problems.NOT_REACHED
    ),
)
async def get_partition(here: Here, covered: Covers, partition: PathPartition) -> Response:
    """Describe one partition."""
    found = find_partition(covered, partition)
    if found is None:
        raise missing(here, partition)
    return views.answer(views.partition(found, here.now()))


@_partitions.get(
    "/api/v1/partitions/{partition}/history",
    responses=views.answered(
        PartitionHistory,
        *(problems.UNKNOWN_PARTITION, problems.INVALID, problems.NOT_REACHED, problems.BUSY_LINE),
        *(state_problems.NOT_READABLE, state_problems.LATE),
    ),
)
async def get_history(request: Request, partition: PathPartition) -> Response:
    """Read from its log who has owned a partition, which snapshots were pointed to, and what was decided about its
    state. Any process may be asked."""
    try:
        return views.answer(await request.app.state.states.history(partition))
    except (UsageError, RetryableError) as error:
        raise state_problems.of(error) from error


# ---- snapshots


@_snapshots.post(
    "/trigger-snapshot",
    status_code=202,
    summary="Write full snapshots now",
    dependencies=[Keyed],
    responses=views.begun(
        problems.MALFORMED,
        problems.UNKNOWN_PARTITION,
        problems.NOT_OWNED,
        problems.NOTHING_LIVE,
        problems.BUSY,
        problems.PARTLY,
        problems.TOO_LARGE,
        problems.INVALID,
        problems.NOT_REACHED,
        problems.OWNER_AWAY,
    ),
)
async def trigger_snapshot(
    here: Here, covered: Covers, request: Annotated[SnapshotRequest | None, Body(openapi_examples=_REQUESTS)] = None
) -> Response:
    """Request a full snapshot of each of these partitions, or without a body of all live ones. Processing continues
    meanwhile. If one partition is refused, no snapshot is started; only if its process refuses it after others have
    begun, the answer says what has begun."""
    wanted = request or SnapshotRequest()
    return await begun_by_owners(
        here,
        covered,
        wanted.partitions,
        "/trigger-snapshot",
        lambda numbers: TriggerSnapshot(numbers, wanted.reason),
        {"reason": wanted.reason},
    )


@_snapshots.get(
    "/api/v1/snapshots", responses=views.answered(views.Snapshots, problems.UNKNOWN_AFTER, problems.INVALID)
)
async def list_snapshots(
    covered: Covers,
    limit: Annotated[int, Query(ge=1, le=SNAPSHOTS_KEPT, description="Snapshots of this answer, at most.")] = (
        SNAPSHOTS_KEPT
    ),
    after: Annotated[str | None, Query(max_length=200, description=AFTER)] = None,
) -> Response:
    """List the full snapshots that this process, or any one, wrote or used, newest first, at most 500."""
    return views.answer(views.snapshots(covered.says, after, limit))


# ---- process

_DRAINED = (problems.UNKNOWN_PROCESS, problems.INVALID, problems.OWNER_AWAY)
ProcessId = Annotated[str, Path(max_length=200, description="GET /api/v1/processes lists them.")]


@_process.post(
    "/api/v1/processes/{process_id}/drain",
    status_code=202,
    summary="Give the partitions of a process away, before maintenance",
    dependencies=[Keyed],
    responses=views.begun(problems.MALFORMED, problems.TOO_LARGE, problems.NO_SUCCESSOR, problems.DRAINING, *_DRAINED),
)
async def drain_process(
    here: Here,
    covered: Covers,
    process_id: ProcessId,
    request: Annotated[Pause | None, Body(openapi_examples=_MAINTENANCE)] = None,
) -> Response:
    """Let a process give its partitions to the others. Processes with warm copies take over first. It stays up, and
    takes neither partitions nor copies until it is undrained or started again, unless no other process is left. The
    operation has succeeded when all its partitions have left the process."""
    reason = (request or Pause()).reason
    return await _drained(here, covered, process_id, SetDrained(drained=True, by=here.asker, reason=reason))


@_process.post(
    "/api/v1/processes/{process_id}/undrain",
    status_code=202,
    summary="Let a drained process take partitions again",
    dependencies=[Keyed],
    responses=views.begun(problems.NO_SUCCESSOR, *_DRAINED),
)
async def undrain_process(here: Here, covered: Covers, process_id: ProcessId) -> Response:
    """Let a process take partitions again, when the group assigns them. A drain that has not ended is cancelled."""
    return await _drained(here, covered, process_id, SetDrained(drained=False, by=here.asker))


async def _drained(here: ApiContext, covered: Covered, process_id: str, command: SetDrained) -> Response:
    who = next((each.process for each in covered.says if each.process.process_id == process_id), None)
    if who is None:
        raise problems.unknown_process(process_id)
    if who == covered.says[0].process:
        return views.accepted(joined([await begun_here(here, covered, command)]))
    if not who.can_be_asked:
        raise problems.owner_away(who, who.last_error)
    path = f"/api/v1/processes/{process_id}/{'drain' if command.drained else 'undrain'}"
    body = {"reason": command.reason} if command.drained else None
    return views.accepted(joined([await here.forwarder.ask(who, path, body, here.passed_on)]))


def _probe_responses(ok: str, failing: str) -> dict[int | str, dict[str, Any]]:
    return views.answered(views.Probe, problems.INVALID, description=ok) | {503: views.documented(views.Probe, failing)}


def _answer(here: ApiContext, probe: Probing, *checks: Check) -> Response:
    said = probe.answer(here.status, *checks)
    return views.answer(said, said.code)


@_process.get("/healthz", responses=_probe_responses("Leave it alone.", "Kill it: it cannot recover by itself."))
async def liveness(here: Here) -> Response:
    """Say whether this process should be left alone or killed. A long restore, a failed partition or an absent
    cluster is never a reason to kill it."""
    return _answer(here, probing.LIVE)


@_process.get("/readyz", responses=_probe_responses("Member of the group, every partition live.", "Not ready (yet)."))
async def readiness(here: Here) -> Response:
    """Say whether every assigned partition is live. A process without partitions is ready, too."""
    return _answer(here, probing.READY)


@_process.get("/startupz", responses=_probe_responses("Started: probe it with /healthz from now on.", "Not started."))
async def startup(here: Here) -> Response:
    """Say whether the process has started: HTTP answers and its loops run. It does not wait for a restore."""
    return _answer(here, probing.STARTED, Check("http", ok=True))


@_process.get("/api/v1", responses=views.answered(ServiceFacts, problems.INVALID))
async def get_facts(here: Here) -> Response:
    """Name app, versions, instance and cluster."""
    return views.answer(here.status.facts)


@_process.get("/api/v1/config", responses=views.answered(views.Config, problems.INVALID))
async def get_config(covered: Covers) -> Response:
    """List the settings as they are used, with where each was given. Secrets are masked."""
    return views.answer(views.config(covered))


@_process.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus text format, or OpenMetrics when asked for.",
            "content": {
                "text/plain": {"schema": {"type": "string"}},
                "application/openmetrics-text": {"schema": {"type": "string"}},
            },
        },
        **problems.documented(),
    },
)
async def metrics(here: Here, request: Request) -> Response:
    """Write every metric of docs/metrics.md."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(
        encode(DocumentCollector(here.status, await here.source.counted())),
        media_type=content_type or CONTENT_TYPE_PLAIN_0_0_4,
    )
