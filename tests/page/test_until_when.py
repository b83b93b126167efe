"""The page says until when a restore lasts, and how far off that may be, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec
import pytest
from playwright.async_api import Page, expect

from snapreplay.service.clock import wall_time
from snapreplay.service.control.restore_plan import Forecast
from snapreplay.service.control.status import PartitionStatus, Progress, RecoveryStatus
from tests.support.fake_control import LIVE, LOADING, FakeControl
from tests.support.served import served


def restored(partition: int, predicted: float, took: float) -> PartitionStatus:
    """Make a live partition whose restore took this long, and was predicted to take that long."""
    end = wall_time() - timedelta(minutes=5)
    forecast = Forecast(predicted, end + timedelta(seconds=predicted - took))
    recovery = RecoveryStatus(attempts=1, started_at=end - timedelta(seconds=took), finished_at=end, forecast=forecast)
    return msgspec.structs.replace(LIVE, partition=partition, restore=recovery)


def restoring(partition: int, predicted: float, live_at: datetime, eta: float | None = None) -> PartitionStatus:
    """Make a partition that is loading."""
    recovery = RecoveryStatus(
        attempts=1,
        started_at=wall_time() - timedelta(seconds=1),
        progress=Progress("bytes", 0, 1_200_000_000, 4_800_000_000, 3_600_000_000 / eta if eta else None, eta),
        forecast=Forecast(predicted, live_at),
    )
    return msgspec.structs.replace(LOADING, partition=partition, restore=recovery)


def later(seconds: float) -> datetime:
    """Return the time so long from now."""
    return wall_time() + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        (
            lambda: [restoring(1, 100.0, later(10_000.0))],
            r"In about 3\sh \(by \d\d:\d\d\), if the prediction holds\. Its error is not known: no restore of",
        ),
        (
            lambda: [
                restored(0, 20.0, 10.0),
                restored(2, 30.0, 63.0),
                restored(3, 0.1, 9.0),
                restoring(1, 100.0, later(4000)),
            ],
            r"In 65\smin to 70\smin \(by \d\d:\d\d\)\. 2 restores took 0\.5 to 2\.1 times their prediction\.$",
        ),
        (
            lambda: [restored(0, 20.0, 20.0), restoring(1, 20.0, later(-1000.0), eta=43.0)],
            r"Not known, as it takes longer than predicted \(20\ss\) and than others took\. This stage takes about",
        ),
        (lambda: [LOADING], r"Not known yet: it is still looking up what to restore\."),
    ],
    ids=["unmeasured", "range", "late", "unknown"],
)
async def test_the_end_is_the_prediction_with_its_error(
    page: Page, statuses: Callable[[], list[PartitionStatus]], said: str
) -> None:
    """The range is by what earlier restores of a similar size took. Without any the page says so, and it gives no end
    that is over already."""
    async with served(FakeControl(statuses())) as url:
        await page.goto(url)
        card = page.get_by_role("article", name=re.compile("being restored"))
        until = card.get_by_text("Until", exact=True).locator("xpath=following-sibling::dd")
        await expect(until).to_have_text(re.compile(said))
