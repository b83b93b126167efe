"""The state of every partition: recovery, position, state."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Body, Response

from snapreplay.api import problems, views
from snapreplay.api.answers import ApiContext, Here
from snapreplay.api.requests import PathPartition, Proposal
from snapreplay.errors import PartitionNotLive, UnknownPartition
from snapreplay.service.control.document import Adopt, Retry

router = APIRouter(tags=["partitions"], generate_unique_id_function=attrgetter("name"))

_PROPOSED = {
    "one": {"summary": "The offset that the job has printed", "value": {"manifest_offset": 1042}}
}


_RESTORE = views.answered(views.RestoreStatus)


@router.get("/restore-status", responses=_RESTORE)
@router.get("/api/v1/restore", operation_id="get_restore", responses=_RESTORE)
async def restore_status(here: Here) -> Response:
    """Tell the running or last recovery of every partition of this process: phase, snapshot, mode, progress,
    seconds per phase, proof. It also answers before any partition is assigned."""
    return views.answer(views.restore_status(here.status.facts, here.status.partitions))


@router.get("/api/v1/partitions", responses=views.answered(views.Partitions))
async def list_partitions(here: Here) -> Response:
    """List the partitions that this process owns or recently owned, ordered by number."""
    now = here.now()
    shown = tuple(views.partition(each, now) for each in here.status.partitions)
    return views.answer(views.Partitions(shown))


@router.get(
    "/api/v1/partitions/{partition}",
    responses=views.answered(
        views.Partition,
        problems.UNKNOWN_PARTITION,
        problems.NOT_HERE,
        problems.INVALID,
        problems.NOT_REACHED,
    ),
)
async def get_partition(here: Here, partition: PathPartition) -> Response:
    """Describe one partition of this process."""
    for status in here.status.partitions:
        if status.partition == partition:
            return views.answer(views.partition(status, here.now()))
    raise _missing(here, partition)


@router.post(
    "/api/v1/partitions/{partition}/retry",
    status_code=202,
    summary="Let a failed partition recover again",
    responses=views.begun(
        problems.UNKNOWN_PARTITION,
        problems.NOT_HERE,
        problems.NOT_FAILED,
        problems.RETRYING,
        problems.INVALID,
        problems.NOT_REACHED,
    ),
)
async def retry_partition(here: Here, partition: PathPartition) -> Response:
    """Let a failed partition recover again, after the cause was repaired or accepted. The topics are checked again,
    then the partition recovers from the fence on; the other partitions of this process continue. The operation
    succeeds when the partition is live and has committed a batch, or found nothing to commit for a second; it fails
    when the partition fails again."""
    try:
        operation = await here.source.perform(Retry(partition))
    except (UnknownPartition, PartitionNotLive):
        raise _missing(here, partition) from None
    return views.accepted(operation)


@router.post(
    "/api/v1/partitions/{partition}/adopt",
    status_code=202,
    summary="Point to a snapshot that a job proposes",
    responses=views.begun(
        problems.MALFORMED,
        problems.UNKNOWN_PARTITION,
        problems.NOT_OWNED,
        problems.ADOPTING,
        problems.TOO_LARGE,
        problems.INVALID,
        problems.NOT_REACHED,
    ),
)
async def adopt_snapshot(
    here: Here,
    partition: PathPartition,
    proposal: Annotated[Proposal, Body(openapi_examples=_PROPOSED)],
) -> Response:
    """Let the owner judge the snapshot whose manifest lies at this offset: it reads the manifest, the increment of
    its batch and every chunk, and hashes every entry. Processing continues meanwhile. The operation succeeds when
    an increment points to the snapshot. It fails with the reason if the proposal is rejected, and nothing else
    happens."""
    if here.status.facts.partition_count is None:
        raise problems.not_reached()
    operation = await here.source.perform(Adopt(partition, proposal.manifest_offset))
    return views.accepted(operation)


def _missing(here: ApiContext, partition: int) -> problems.ProblemError:
    count = here.status.facts.partition_count
    if count is None:
        return problems.not_reached()
    if partition >= count:
        return problems.unknown_partition(partition, count)
    return problems.ProblemError(
        problems.NOT_HERE,
        f"partition {partition} exists (there are {count}), but this process does not own it",
        partition=partition,
        partition_count=count,
    )
