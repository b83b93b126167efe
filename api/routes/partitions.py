"""Where every partition is: recovery, position, state."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Response

from snapreplay.api import operation_schemas, problems, schemas, views
from snapreplay.api.context import ApiContext, Here
from snapreplay.service.control.protocol import NotOwned, UnknownPartition

router = APIRouter(tags=["partitions"])

_PROPOSED = {
    "one": {"summary": "The offset that the job has printed", "value": {"manifest_offset": 1042}}
}


@router.get("/restore-status", operation_id="restore_status", responses=problems.documented())
@router.get("/api/v1/restore", operation_id="get_restore", responses=problems.documented())
async def restore_status(here: Here) -> schemas.RestoreStatus:
    """The running or last recovery of every partition of this process: phase, snapshot, mode,
    progress, seconds per phase, proof. It also answers before any partition is assigned."""
    return views.restore_status(here.control.facts(), here.control.partitions())


@router.get("/api/v1/partitions", operation_id="list_partitions", responses=problems.documented())
async def list_partitions(here: Here) -> schemas.Partitions:
    """Partitions that this process owns or recently owned, ordered by number."""
    now = here.now()
    return schemas.Partitions(
        items=tuple(views.partition(each, now) for each in here.control.partitions())
    )


@router.get(
    "/api/v1/partitions/{partition}",
    operation_id="get_partition",
    responses=problems.documented(
        problems.UNKNOWN_PARTITION, problems.NOT_HERE, problems.INVALID, problems.NOT_REACHED
    ),
)
async def get_partition(here: Here, partition: schemas.PathPartition) -> schemas.Partition:
    """One partition of this process."""
    for status in here.control.partitions():
        if status.partition == partition:
            return views.partition(status, here.now())
    raise _missing(here, partition)


@router.post(
    "/api/v1/partitions/{partition}/retry",
    status_code=202,
    operation_id="retry_partition",
    summary="Let a failed partition recover again",
    responses={
        202: views.ACCEPTED,
        **problems.documented(
            problems.UNKNOWN_PARTITION,
            problems.NOT_HERE,
            problems.NOT_FAILED,
            problems.RETRYING,
            problems.INVALID,
            problems.NOT_REACHED,
        ),
    },
)
async def retry_partition(
    here: Here, response: Response, partition: schemas.PathPartition
) -> operation_schemas.Operation:
    """To be called after the cause was repaired or accepted. The topics are checked again, then the partition recovers
    from the fence on; the other partitions of this process continue. The operation succeeds when the partition is live
    and has committed a batch, or found nothing to commit for a second; it fails when the partition fails again."""
    try:
        operation = here.control.retry(partition)
    except (UnknownPartition, NotOwned):
        raise _missing(here, partition) from None
    return views.accepted(operation, response)


@router.post(
    "/api/v1/partitions/{partition}/adopt",
    status_code=202,
    operation_id="adopt_snapshot",
    summary="Point to a snapshot that a job proposes",
    responses={
        202: views.ACCEPTED,
        **problems.documented(
            problems.MALFORMED,
            problems.UNKNOWN_PARTITION,
            problems.NOT_OWNED,
            problems.ADOPTING,
            problems.TOO_LARGE,
            problems.MEDIA,
            problems.INVALID,
            problems.NOT_REACHED,
        ),
    },
)
async def adopt_snapshot(
    here: Here,
    response: Response,
    partition: schemas.PathPartition,
    proposal: Annotated[operation_schemas.Proposal, Body(openapi_examples=_PROPOSED)],
) -> operation_schemas.Operation:
    """Lets the owner judge the snapshot whose manifest lies at this offset: it reads the manifest, the increment of its
    batch and every chunk, and hashes every entry. Processing continues meanwhile. The operation succeeds when an
    increment points to the snapshot. It fails with the reason if the proposal is rejected, and nothing else happens."""
    if here.control.facts().partition_count is None:
        raise problems.not_reached()
    return views.accepted(here.control.adopt(partition, proposal.manifest_offset), response)


def _missing(here: ApiContext, partition: int) -> problems.ProblemError:
    count = here.control.facts().partition_count
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
