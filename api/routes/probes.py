"""For machines: probes, metrics, facts about this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder

from snapreplay.api import problems, schemas, views
from snapreplay.api.context import Here
from snapreplay.service.control.metrics import ControlCollector
from snapreplay.service.control.protocol import Check

router = APIRouter(tags=["process"])


def _probe_responses(ok: str, failing: str) -> dict[int | str, dict[str, Any]]:
    return {
        200: {"description": ok},
        503: {"model": schemas.Probe, "description": failing},
        **problems.documented(),
    }


def _answer(checks: Sequence[Check]) -> JSONResponse:
    probe = views.probe(checks)
    return JSONResponse(probe.model_dump(mode="json"), 200 if probe.status == "ok" else 503)


@router.get(
    "/healthz",
    operation_id="liveness",
    response_model=schemas.Probe,
    responses=_probe_responses("Leave it alone.", "Kill it: it cannot recover by itself."),
)
async def liveness(here: Here) -> JSONResponse:
    """Whether this process should be left alone or killed. A long restore, a failed partition or an
    absent cluster is never a reason to kill it."""
    return _answer(here.control.live_checks())


@router.get(
    "/readyz",
    operation_id="readiness",
    response_model=schemas.Probe,
    responses=_probe_responses("Member of the group, every partition live.", "Not ready (yet)."),
)
async def readiness(here: Here) -> JSONResponse:
    """Whether every assigned partition is live. A process without partitions is ready, too."""
    return _answer(here.control.ready_checks())


@router.get(
    "/startupz",
    operation_id="startup",
    response_model=schemas.Probe,
    responses=_probe_responses("Started: probe it with /healthz from now on.", "Not started."),
)
async def startup(here: Here) -> JSONResponse:
    """Whether the process has started: HTTP answers and its loops run. It does not wait for a restore."""
    return _answer([Check("http", ok=True), *here.control.live_checks()])


@router.get("/api/v1", operation_id="get_facts", responses=problems.documented())
async def get_facts(here: Here) -> schemas.Facts:
    """App, versions, instance, cluster."""
    return schemas.Facts.model_validate(here.control.facts())


@router.get(
    "/metrics",
    operation_id="metrics",
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
    """Every metric of docs/metrics.md."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(
        encode(ControlCollector(here.control)),
        media_type=content_type or CONTENT_TYPE_PLAIN_0_0_4,
    )
