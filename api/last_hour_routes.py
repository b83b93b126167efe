"""The route of the last hour."""

from __future__ import annotations

import re
from datetime import datetime
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime, BeforeValidator

from snapreplay.api import last_hour_view, problems, views
from snapreplay.api.action_routes import PartitionNumber, canonical
from snapreplay.api.answers import Here
from snapreplay.api.fleet_routes import Covers
from snapreplay.api.fleet_views import Scope
from snapreplay.api.last_hour import EVERY_SECONDS, ROWS
from snapreplay.errors import UnknownPartition

ROUTER = APIRouter(tags=["fleet"], generate_unique_id_function=attrgetter("name"))


def written(value: object) -> object:
    # pydantic also takes seconds since 1970, which the documented format does not have.
    if isinstance(value, str) and not re.match(r"\d{4}-", value):
        raise ValueError("a time is as in RFC 3339, such as 2026-11-03T08:00:00Z")
    return value


@ROUTER.get(
    last_hour_view.PATH, responses=views.answered(last_hour_view.LastHour, problems.UNKNOWN_PARTITION, problems.INVALID)
)
async def get_last_hour(
    here: Here,
    covered: Covers,
    partition: Annotated[
        Annotated[PartitionNumber, BeforeValidator(canonical)] | None, Query(description="Without it: the whole app.")
    ] = None,
    since: Annotated[
        Annotated[AwareDatetime, BeforeValidator(written)] | None, Query(description="Only what came after it.")
    ] = None,
) -> Response:
    """Tell throughput, commits, sizes, predicted restores and lags of the last hour, as this process has seen them of
    all processes of the app; `scope=app` also asks the others what they have seen."""
    count = covered.own.facts.partition_count
    if partition is not None and count is not None and partition >= count:
        raise UnknownPartition(partition, count)
    slots = _slots(here.now(), since)
    told = [here.hour.rows(partition, slots[-1])] if slots else []
    if slots and covered.scope is Scope.APP:
        told += await last_hour_view.asked(here.forwarder, covered, partition, slots)
    return views.answer(last_hour_view.view(last_hour_view.joined(told, slots), partition, covered.scope))


def _slots(now: datetime, since: datetime | None) -> range:
    newest = round(now.timestamp() / EVERY_SECONDS)
    first = newest - ROWS + 1
    return range(first if since is None else max(first, int(since.timestamp() // EVERY_SECONDS) + 1), newest + 1)
