"""The routes that ask for audits: of one partition, and of several. Their owners carry them out, whoever is asked."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Response
from pydantic import BeforeValidator, Field

from snapreplay.api import problems, views
from snapreplay.api.action_routes import PartitionNumber, PathPartition, begun_by_owners, whole
from snapreplay.api.answers import ApiContext, Here, Keyed
from snapreplay.api.fleet_routes import Covers
from snapreplay.api.fleet_views import Covered
from snapreplay.service.control.audit_run import StartAudit

ROUTER = APIRouter(tags=["partitions"], dependencies=[Keyed], generate_unique_id_function=attrgetter("name"))


class Audited(problems.Model):
    """The strength of an audit."""

    level: Annotated[
        Literal["integrity", "changes", "replay"],
        Field(description="Each includes those before it. `replay` runs the app's handlers again."),
    ] = "changes"


class AuditRequest(Audited):
    """The partitions to audit, and how."""

    partitions: Annotated[
        list[Annotated[PartitionNumber, BeforeValidator(whole)]] | None,
        Field(min_length=1, max_length=10_000, description="If left out: all live partitions."),
    ] = None


_REFUSED = (
    *(problems.MALFORMED, problems.UNKNOWN_PARTITION, problems.NOT_OWNED, problems.AUDITING, problems.PARTLY),
    *(problems.TOO_LARGE, problems.INVALID, problems.NOT_REACHED, problems.OWNER_AWAY),
)
_LEVEL = {"one": {"summary": "Also what the handlers make of the input", "value": {"level": "replay"}}}
_SOME = {"one": {"summary": "Two partitions", "value": {"partitions": [0, 2], "level": "changes"}}}


@ROUTER.post(
    "/api/v1/partitions/{partition}/audit",
    status_code=202,
    summary="Prove that the log of a live partition is whole",
    responses=views.begun(*_REFUSED),
)
async def audit_partition(
    here: Here,
    covered: Covers,
    partition: PathPartition,
    request: Annotated[Audited | None, Body(openapi_examples=_LEVEL)] = None,
) -> Response:
    """Let the owner of a live partition audit what came after the last proof, in a process of its own beside the
    processing, and record the new proof. The operation fails with the `findings` if something in the log is wrong. It
    also fails, without any, if the audit was given up; `detail` has the reason."""
    return await _audited(here, covered, [partition], (request or Audited()).level)


@ROUTER.post(
    "/api/v1/audits",
    status_code=202,
    summary="Prove that the logs of live partitions are whole",
    responses=views.begun(*_REFUSED, problems.NOTHING_LIVE),
)
async def audit_partitions(
    here: Here, covered: Covers, request: Annotated[AuditRequest | None, Body(openapi_examples=_SOME)] = None
) -> Response:
    """Let the owners audit these partitions, or without a body all live ones: each process one after the other."""
    wanted = request or AuditRequest()
    return await _audited(here, covered, wanted.partitions, wanted.level)


async def _audited(here: ApiContext, covered: Covered, partitions: list[int] | None, level: str) -> Response:
    return await begun_by_owners(
        here, covered, partitions, "/api/v1/audits", lambda numbers: StartAudit(numbers, level), {"level": level}
    )
