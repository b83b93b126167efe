"""The page says until when a restore lasts, and how far off that may be, in a real browser."""

import asyncio
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.async_api import Page, expect

from snapreplay.service.clock import wall_time
from snapreplay.service.control.restore_plan import Forecast
from snapreplay.service.control.status import PartitionStatus, Progress, RecoveryStatus
from tests.page.looking import looked_at, opened, says
from tests.support import apps
from tests.support.fake_control import LIVE, LOADING, FakeControl
from tests.support.gates import Gate
from tests.support.stage import snapshot


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
    async with opened(page, FakeControl(statuses())):
        card = page.get_by_role("article", name=re.compile("being restored"))
        until = card.get_by_text("Until", exact=True).locator("xpath=following-sibling::dd")
        await expect(until).to_have_text(re.compile(said))


async def test_of_several_restores_the_last_one_counts(page: Page) -> None:
    """Each has its own end beside its stages. What is not known of one is said of all."""
    control = FakeControl(
        [
            restored(0, 30.0, 21.0),
            restored(1, 40.0, 66.0),
            restoring(2, 45.0, later(60.0), eta=12.0),
            restoring(3, 90.0, later(600.0), eta=200.0),
            msgspec.structs.replace(LOADING, partition=4, restore=RecoveryStatus(attempts=1, started_at=wall_time())),
        ]
    )
    control.service_facts = msgspec.structs.replace(control.service_facts, partition_count=5)
    async with opened(page, control):
        card = page.get_by_role("article", name="Partitions 2–4 are being restored")
        await expect(card).to_contain_text(
            re.compile(r"Partition 4: not known yet\. Partition 3 is the last of the others: in \d+\smin")
        )
        one = page.get_by_role("article", name="Restore of partition 2")
        await expect(one).to_contain_text(
            re.compile(r"Until live: in \d+\ss to .*2 restores took 0\.7 to 1\.\d times their prediction\.")
        )
        await expect(one).to_contain_text("about 10\u00a0s left in this stage")
        await looked_at(page)


async def test_a_real_restore_that_makes_no_progress_is_later_than_predicted(
    stage: Any, unique: Any, children: Any, page: Page, tmp_path: Path
) -> None:
    """The snapshot is loaded, and nothing continues. When it does, the partition is live and the prediction stays."""
    here = await stage(apps.ledger(unique("until")))
    async with here.running(records=200) as service:
        await snapshot(service)
    gate = Gate(tmp_path / "gate", "Advance")
    with gate.armed():
        child = children.start("ledger", here.app.app_id)
    await asyncio.to_thread(child.wait_http)
    await asyncio.to_thread(child.until, gate.reached, "the gate")
    await page.goto(child.url)
    await says(page, re.compile("Partition 0 is being restored"))
    card = page.get_by_role("article", name="Partition 0 is being restored")
    await expect(card).to_contain_text("Not known, as it takes longer than predicted (1\u00a0s).")
    await expect(page.get_by_role("article", name="Restore of partition 0")).to_contain_text("longer than predicted")
    await looked_at(page)
    gate.open()
    await says(page, re.compile("Healthy"))
    forecast = child.partitions()[0]["forecast"]
    assert forecast["seconds"] == pytest.approx(0.2, abs=0.05)
    assert forecast["live_at"] < child.partitions()[0]["finished_at"]
