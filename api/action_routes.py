"""Routes that ask something of one partition: retry, adopt, pause, resume, drill. Its owner does it, whoever is
asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Body, Path, Response
from pydantic import BeforeValidator, Field

from snapreplay.api import problems, views
from snapreplay.api.answers import ApiContext, Here, Keyed
from snapreplay.api.fleet_routes import Covers
from snapreplay.api.fleet_views import Covered
from snapreplay.api.forwarding import Begun
from snapreplay.api.operation_views import joined
from snapreplay.api.owners import elsewhere, shares
from snapreplay.errors import PartitionNotLive, UnknownPartition
from snapreplay.service.control.protocol import Adopt, Command, Once, Retry, SetPaused, StartDrill

ROUTER = APIRouter(tags=["partitions"], dependencies=[Keyed], generate_unique_id_function=attrgetter("name"))

PARTITION_MAX = 2**31 - 1  # Kafka's partition numbers are int32
INTEGER_MAX = 2**53 - 1
"""JSON has no larger integer that every client reads exactly (RFC 8259); no log is that long."""

PartitionNumber = Annotated[
    int, Field(ge=0, le=PARTITION_MAX, description="Number of a state partition.", examples=[0])
]


def canonical(value: object) -> object:
    # int() also takes "+1", "1_0", " 1" and "1.0": one partition has one URL.
    if isinstance(value, str) and not re.fullmatch(r"0|[1-9][0-9]{0,9}", value):
        raise ValueError("a partition is a number, such as 0")
    return value


PathPartition = Annotated[PartitionNumber, BeforeValidator(canonical), Path(description="Number of a state partition.")]


def whole(value: object) -> object:
    # JSON has one kind of number: 2.0 is an integer there, and some clients send it.
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Proposal(problems.Model):
    """A snapshot that a job has written into the snapshots topic."""

    manifest_offset: Annotated[
        int, Field(ge=0, le=INTEGER_MAX, description="Of its manifest in the snapshots topic."), BeforeValidator(whole)
    ]


class Pause(problems.Model):
    """The reason for a pause."""

    reason: Annotated[str, Field(max_length=500, description="Kept with the operation and the pause.")] = ""


OfPartition = Retry | Adopt | SetPaused | StartDrill

_PROPOSED = {"one": {"summary": "The offset that the job has printed", "value": {"manifest_offset": 1042}}}


async def begun_here(here: ApiContext, covered: Covered, command: Command) -> Begun:
    """Let this process begin, and tell the others at once: they may be asked what became of it."""
    asked = Once(here.key, here.fingerprint, command) if here.key else command
    operation = await here.source.perform(asked)
    here.events.tell(at_once=True)
    return covered.says[0].process, operation


@ROUTER.post(
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
        problems.OWNER_AWAY,
    ),
)
async def retry_partition(here: Here, covered: Covers, partition: PathPartition) -> Response:
    """Let a failed partition recover again, after the cause was repaired or accepted. The topics are checked again,
    then the partition recovers from the fence on; the other partitions of its process continue. The operation
    succeeds when the partition is live and has committed a batch, or found nothing to commit for a second; it fails
    when the partition fails again."""
    try:
        return await _let_owner(here, covered, "retry", Retry(partition))
    except (UnknownPartition, PartitionNotLive):
        raise missing(here, partition) from None


@ROUTER.post(
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
        problems.OWNER_AWAY,
    ),
)
async def adopt_snapshot(
    here: Here,
    covered: Covers,
    partition: PathPartition,
    proposal: Annotated[Proposal, Body(openapi_examples=_PROPOSED)],
) -> Response:
    """Let the owner judge the snapshot whose manifest lies at this offset: it reads the manifest, the increment of
    its batch and every chunk, and hashes every entry. Processing continues meanwhile. The operation succeeds when
    an increment points to the snapshot. It fails with the reason if the proposal is rejected, and nothing else
    happens."""
    check_reached(here)
    wanted = Adopt(partition, proposal.manifest_offset)
    return await _let_owner(here, covered, "adopt", wanted, proposal)


_PAUSING = (problems.UNKNOWN_PARTITION, problems.NOT_OWNED, problems.INVALID, problems.NOT_REACHED, problems.OWNER_AWAY)
_WHY = {"one": {"summary": "With a reason", "value": {"reason": "the service behind is down"}}}


@ROUTER.post(
    "/api/v1/partitions/{partition}/pause",
    status_code=202,
    summary="Process nothing more of a partition until it is resumed",
    responses=views.begun(problems.MALFORMED, problems.PAUSING, problems.TOO_LARGE, *_PAUSING),
)
async def pause_partition(
    here: Here,
    covered: Covers,
    partition: PathPartition,
    request: Annotated[Pause | None, Body(openapi_examples=_WHY)] = None,
) -> Response:
    """Process nothing more of a live partition after the batch under way. It stays live, owned and in memory. The
    pause is in the log: it holds after restarts and for each later owner, until it is resumed. The operation succeeds
    when the pause is committed."""
    check_reached(here)
    why = request or Pause()
    return await _let_owner(here, covered, "pause", SetPaused(partition, paused=True, reason=why.reason), why)


@ROUTER.post(
    "/api/v1/partitions/{partition}/resume",
    status_code=202,
    summary="Process a paused partition again",
    responses=views.begun(problems.RESUMING, *_PAUSING),
)
async def resume_partition(here: Here, covered: Covers, partition: PathPartition) -> Response:
    """Go on with the next record. The operation succeeds when this is committed."""
    check_reached(here)
    return await _let_owner(here, covered, "resume", SetPaused(partition, paused=False))


@ROUTER.post(
    "/api/v1/partitions/{partition}/drill",
    status_code=202,
    summary="Restore a live partition into a store that is thrown away",
    responses=views.begun(problems.DRILLING, *_PAUSING),
)
async def drill_partition(here: Here, covered: Covers, partition: PathPartition) -> Response:
    """Let the owner of a live partition restore it from the log into a store that is thrown away, beside the
    processing. The operation succeeds when the restored state has the digest of the last batch. It fails when a
    recovery would fail or fall back, and when the drill is given up. The `drill` of the partition has the seconds."""
    check_reached(here)
    return await _let_owner(here, covered, "drill", StartDrill(partition))


async def begun_by_owners(
    here: ApiContext,
    covered: Covered,
    partitions: list[int] | None,
    path: str,
    command: Callable[[tuple[int, ...] | None], Command],
    body: Mapping[str, object],
) -> Response:
    """Let the owner of each of these partitions begin, or of all live ones (None). `path` and `body`: of the request
    to the other processes, `command`: to this one."""
    here_too, others = shares(covered, partitions)
    begun: list[Begun] = []
    if here_too is None or here_too:
        begun.append(await begun_here(here, covered, command(here_too)))
    bodies = [(who, {"partitions": numbers, **body}) for who, numbers in others]
    more, refused = await here.forwarder.ask_all(bodies, path, here.passed_on)
    begun += more
    if refused and begun:
        raise problems.partly(joined(begun).id, refused)
    if refused:
        raise refused[0]
    return views.accepted(joined(begun))


def check_reached(here: ApiContext) -> None:
    """Raise a problem if nothing is known of the app's partitions yet."""
    if here.status.facts.partition_count is None:
        raise problems.not_reached()


async def _let_owner(
    here: ApiContext, covered: Covered, action: str, command: OfPartition, body: problems.Model | None = None
) -> Response:
    """Let the owner of the partition begin. `body`: of the request."""
    if (owner := elsewhere(covered, command.partition)) is not None:
        path = f"/api/v1/partitions/{command.partition}/{action}"
        begun = await here.forwarder.ask(owner, path, body.model_dump() if body else None, here.passed_on)
    else:
        begun = await begun_here(here, covered, command)
    return views.accepted(joined([begun]))


def missing(here: ApiContext, partition: int) -> problems.ProblemError:
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
