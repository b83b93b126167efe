"""The routes that read: the state of every partition, its snapshots and savepoints, the processes of the app, probes,
metrics and facts.

Handlers are `async` and only ask the service by `Asking`. Nothing here may block: the same loop answers probes.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder
from prometheus_client.registry import Collector
from pydantic import BeforeValidator, Field

from snapreplay.api import events, last_hour, probing, problems, views
from snapreplay.api.context import Covers, Here
from snapreplay.api.fleet_views import find_partition, held
from snapreplay.api.guard import IS_STILL_KNOWN
from snapreplay.api.operation_routes import canonical
from snapreplay.api.probing import Probing
from snapreplay.api.serving import connections_max
from snapreplay.errors import UnknownPartition
from snapreplay.service.control.counters import EVENTS
from snapreplay.service.control.kafka_reads import DeadLetterList, PartitionHistory, SavepointList
from snapreplay.service.control.metrics import DocumentCollector, EventsOf
from snapreplay.service.control.operations import PARTITION_MAX
from snapreplay.service.control.protocol import Check, ServiceFacts
from snapreplay.service.control.status import SNAPSHOTS_KEPT

_partitions, _snapshots, _savepoints, _letters, _fleet, _process = ROUTERS = [
    APIRouter(tags=[tag], generate_unique_id_function=attrgetter("name"))
    for tag in ("partitions", "snapshots", "savepoints", "dead letters", "fleet", "process")
]

PartitionNumber = Annotated[int, Field(ge=0, le=PARTITION_MAX), BeforeValidator(canonical)]
PathPartition = Annotated[PartitionNumber, Path(description="Number of a state partition.")]

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


@_partitions.get("/api/v1/partitions", responses=views.answered(views.Partitions, problems.INVALID))
async def list_partitions(here: Here, covered: Covers) -> Response:
    """List all partitions, or those that this process owns or recently owned, ordered by number."""
    return views.answer(views.Partitions(tuple(views.partition(each, here.now()) for each in held(covered))))


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
        raise problems.missing(partition, here.status.facts.partition_count)
    return views.answer(views.partition(found, here.now()))


@_partitions.get(
    "/api/v1/partitions/{partition}/history",
    responses=views.answered(
        PartitionHistory,
        *(problems.UNKNOWN_PARTITION, problems.INVALID, problems.NOT_REACHED, problems.BUSY_LINE),
        *(problems.NOT_READABLE, problems.LATE),
    ),
)
async def get_history(here: Here, partition: PathPartition) -> Response:
    """Read from its log who has owned a partition, which snapshots were pointed to, and what was decided about its
    state. Any process may be asked."""
    return views.answer(await here.source.history(partition))


# ---- snapshots and savepoints


@_snapshots.get("/api/v1/snapshots", responses=views.answered(views.Snapshots, problems.INVALID))
async def list_snapshots(
    covered: Covers,
    limit: Annotated[int, Query(ge=1, le=SNAPSHOTS_KEPT, description="Snapshots of this answer, at most.")] = (
        SNAPSHOTS_KEPT
    ),
) -> Response:
    """List the full snapshots that this process, or any one, wrote or used, newest first, at most 500."""
    return views.answer(views.snapshots(covered.says, limit))


@_savepoints.get(
    "/api/v1/savepoints",
    responses=views.answered(SavepointList, problems.SAVEPOINTS_UNREAD, problems.BUSY_LINE, problems.LATE),
)
async def list_savepoints(here: Here) -> Response:
    """Read from Kafka which savepoints the app has, also those that cannot be used, and why."""
    return views.answer(await here.source.savepoints())


@_letters.get(
    "/api/v1/dead-letters",
    responses=views.answered(
        DeadLetterList,
        *(problems.UNKNOWN_PARTITION, problems.INVALID, problems.BUSY_LINE, problems.NOT_READABLE, problems.LATE),
    ),
)
async def list_dead_letters(here: Here) -> Response:
    """Read the newest dead letters from Kafka, at most 100, newest first: the record, the reason, and whether it was
    sent back. Any process may be asked."""
    return views.answer(await here.source.dead_letters())


# ---- the app as a whole


@_fleet.get("/api/v1/processes", responses=views.answered(views.Processes, problems.INVALID))
async def list_processes(here: Here) -> Response:
    """List the processes of the app: this one, the others of its group as of the last assignment, then those that
    died within the last quarter of an hour."""
    return views.answer(views.Processes(tuple(each.process for each in here.fleet)))


@_fleet.get(last_hour.PATH, responses=views.answered(last_hour.LastHour, problems.UNKNOWN_PARTITION, problems.INVALID))
async def get_last_hour(
    here: Here, partition: Annotated[PartitionNumber | None, Query(description="Without it: the whole app.")] = None
) -> Response:
    """Tell throughput, commits, sizes, predicted restores and lags of the last hour, as this process has seen them of
    all processes of the app."""
    count = here.status.facts.partition_count
    if partition is not None and count is not None and partition >= count:
        raise UnknownPartition(partition, count)
    return views.answer(last_hour.view(here.hour.rows(partition, last_hour.slot_of(here.now())), partition))


LOGIN_SECONDS = 1.0
"""Between two looks at the login of a stream."""


@_fleet.get(
    events.PATH,
    response_class=StreamingResponse,
    responses={
        200: {"description": "Events, until the service ends.", "content": {events.MEDIA_TYPE: {}}},
        **problems.documented(problems.TOO_MANY_STREAMS, problems.INVALID),
    },
)
async def follow_events(
    request: Request,
    here: Here,
    follower: Annotated[str, Query(max_length=200, description="Process id of a peer; others leave it out.")] = "",
) -> Response:
    """Tell what this process does, as it happens, as server-sent events. `status`: a status document as JSON; the
    first one has all members, each further one those that changed, at most once a second. Twice a second a comment says
    for how long the service has been silent, and how old the status is. `bye`: the service ends in good order. A stream
    ends when its token is revoked or expires, or gets another role."""
    document = here.status
    is_peer = any(each.process_id == follower for each in document.peers)
    places = connections_max()
    if here.events.readers >= (places if is_peer else places - places // 2):
        taken = f"{here.events.readers} readers of events are connected already"
        raise problems.ProblemError(problems.TOO_MANY_STREAMS, taken)
    return StreamingResponse(
        _while_known(here.events.stream(document), request.scope[IS_STILL_KNOWN]),
        media_type=events.MEDIA_TYPE,
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _while_known(pieces: AsyncGenerator[bytes], is_still_known: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield the pieces as long as the login of the request is good. Something is sent twice a second, always."""
    asked_at = time.monotonic()
    async with aclosing(pieces):
        async for piece in pieces:
            if time.monotonic() - asked_at >= LOGIN_SECONDS:
                asked_at = time.monotonic()
                if not is_still_known():
                    return
            yield piece


# ---- process


def _add_probe(probe: Probing, name: str, ok: str, failing: str, says: str, *checks: Check) -> None:
    async def answer(here: Here) -> Response:
        said = probe.answer((here.status,), *checks)
        return views.answer(said, said.code)

    responses = views.answered(views.Probe, problems.INVALID, description=ok)
    responses[503] = views.documented(views.Probe, failing)
    _process.add_api_route(probe.path, answer, name=name, description=says, responses=responses)


_add_probe(
    probing.LIVE,
    "liveness",
    "Leave it alone.",
    "Kill it: it cannot recover by itself.",
    "Say whether this process should be left alone or killed. A long restore, a failed partition or an absent\n"
    "cluster is never a reason to kill it.",
)
_add_probe(
    probing.READY,
    "readiness",
    "Member of the group, every partition live.",
    "Not ready (yet).",
    "Say whether every assigned partition is live. A process without partitions is ready, too.",
)
_add_probe(
    probing.STARTED,
    "startup",
    "Started: probe it with /healthz from now on.",
    "Not started.",
    "Say whether the process has started: HTTP answers and its loops run. It does not wait for a restore.",
    Check("http", ok=True),
)


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
    """Write every metric of docs/runbook.md."""
    happened = EventsOf(here.status.facts.app_id, EVENTS) if here.path else EVENTS
    return exposed(DocumentCollector(here.status, happened), request)


def exposed(collector: Collector, request: Request) -> Response:
    """Write the metrics in the format that is asked for."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(collector), media_type=content_type or CONTENT_TYPE_PLAIN_0_0_4)
