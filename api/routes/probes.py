"""The routes for machines: probes, metrics, facts about this process."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder

from snapreplay.api import problems, views
from snapreplay.api.answers import Here
from snapreplay.service.control.document import Look
from snapreplay.service.control.metrics import DocumentCollector
from snapreplay.service.control.protocol import Check, ServiceFacts
from snapreplay.service.service_control import SILENT_SECONDS

router = APIRouter(tags=["process"], generate_unique_id_function=attrgetter("name"))


def _probe_responses(ok: str, failing: str) -> dict[int | str, dict[str, Any]]:
    return views.answered(views.Probe, description=ok) | {
        503: views.documented(views.Probe, failing)
    }


DEAD_SECONDS = 10.0  # a silent process is frozen, or a handler keeps the interpreter to itself


def _live(look: Look) -> Sequence[Check]:
    return look.document.live_checks if look.document is not None else ()


def _ready(look: Look) -> Sequence[Check]:
    return look.document.ready_checks if look.document is not None else ()


def _answers(look: Look, seconds_max: float) -> Check:
    """Say whether the service answers; HTTP has a process of its own: it answers while the service is frozen, and
    must say so."""
    known = look.document is not None and look.age_seconds < seconds_max
    return Check("service process", known, f"last answer {look.age_seconds:.1f} s ago")


def _answer(checks: Sequence[Check]) -> Response:
    probe = views.probe(checks)
    return views.answer(probe, 200 if probe.status == "ok" else 503)


@router.get(
    "/healthz",
    responses=_probe_responses("Leave it alone.", "Kill it: it cannot recover by itself."),
)
async def liveness(here: Here) -> Response:
    """Say whether this process should be left alone or killed. A long restore, a failed partition or an absent
    cluster is never a reason to kill it."""
    return _answer([_answers(here.look, DEAD_SECONDS), *_live(here.look)])


@router.get(
    "/readyz",
    responses=_probe_responses("Member of the group, every partition live.", "Not ready (yet)."),
)
async def readiness(here: Here) -> Response:
    """Say whether every assigned partition is live. A process without partitions is ready, too."""
    return _answer([_answers(here.look, SILENT_SECONDS), *_ready(here.look)])


@router.get(
    "/startupz",
    responses=_probe_responses("Started: probe it with /healthz from now on.", "Not started."),
)
async def startup(here: Here) -> Response:
    """Say whether the process has started: HTTP answers and its loops run. It does not wait for a restore."""
    return _answer([Check("http", ok=True), _answers(here.look, DEAD_SECONDS), *_live(here.look)])


@router.get("/api/v1", responses=views.answered(ServiceFacts))
async def get_facts(here: Here) -> Response:
    """Name app, versions, instance and cluster."""
    return views.answer(here.status.facts)


@router.get(
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
