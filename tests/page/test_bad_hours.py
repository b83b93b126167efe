"""A browser that sleeps for a day, clocks that are apart, a cluster without a broker: the page says what it knows."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.async_api import Page, expect

from snapreplay.devbroker.broker import LocalBroker
from snapreplay.service.clock import wall_time
from snapreplay.service.control.status import PartitionError
from tests.page.looking import looked_at, says
from tests.page.test_states import ANSWERS, Held, healthy
from tests.support import apps
from tests.support.child import family
from tests.support.fake_control import FAILED
from tests.support.served import served
from tests.support.stage import Stage

DAY = timedelta(days=1)


async def test_a_browser_that_slept_for_a_day_does_not_take_yesterday_for_now(page: Page) -> None:
    """Until an answer comes, it says that its last one is a day old. Then it is as new as ever."""
    await page.clock.install()
    held = await Held.of(page)
    async with served(healthy()) as url:
        await page.goto(url)
        await says(page, re.compile("Healthy"))
        await page.route(ANSWERS, held.hold)
        await held.has_one.wait()  # else an answer that is on its way now would come in the morning
        await page.clock.fast_forward("24:00:00")
        await says(page, re.compile("No new answer"))
        await expect(page.locator(".band")).to_contain_text("The last one is 24 h old.")
        await expect(page.get_by_role("button", name="Write snapshots")).to_be_disabled()
        held.release()
        await page.clock.run_for(2_000)
        await says(page, re.compile("Healthy"))
        await expect(page.locator(".top")).to_contain_text("This page: live, as of")


@pytest.mark.parametrize("apart", [-DAY, timedelta(hours=3)], ids=["behind", "ahead"])
async def test_ages_are_by_the_clock_of_the_process(page: Page, apart: timedelta) -> None:
    """A browser with a wrong clock shows how long ago something was, and is not taken for old."""
    control = healthy()
    error = PartitionError("HandlerFailed", "it broke", "deploy a fixed handler", "stop", "", wall_time() - 8 * DAY)
    control.statuses[0] = msgspec.structs.replace(FAILED, partition=0, error=error)
    await page.clock.install(time=wall_time() + apart)
    async with served(control) as url:
        await page.goto(url)
        await says(page, re.compile("Partition 0 is down"))
        card = page.get_by_role("article", name="Partition 0 is down")
        await expect(card.locator("time + small").first).to_have_text("8 days ago")
        await expect(card.locator("time").first).to_have_attribute(
            "datetime", re.compile(f"^{error.at:%Y-%m-%dT%H:%M}")
        )
        await expect(page.locator(".top")).to_contain_text("This page: live, as of")


@pytest.fixture
def own_broker() -> Iterator[LocalBroker]:
    """One that this test may kill."""
    with LocalBroker() as broker:
        yield broker


@pytest.mark.kafka
async def test_the_page_of_a_process_without_a_broker(
    own_broker: LocalBroker, unique: Any, page: Page, tmp_path: Path
) -> None:
    """The only broker is killed: the page comes at once as ever, says what is wrong and that nothing is lost, and is
    healthy when the broker is back."""
    servers = own_broker.bootstrap_servers
    here = Stage(servers, apps.ledger(unique("dark")))
    await here.prepare()
    await here.feed(20)
    with family(servers, tmp_path) as children:
        child = children.start("ledger", here.app.app_id, **{"kafka__request.timeout.ms": 2000})
        await asyncio.to_thread(child.wait_live)
        await page.goto(child.url)
        await says(page, re.compile("Healthy"))
        await asyncio.to_thread(own_broker.kill)
        card = page.get_by_role("article", name=re.compile("Process one (reaches no broker|has no contact)"))
        await expect(card).to_contain_text("No. It commits nothing meanwhile.")
        await expect(card).to_contain_text("Look at the brokers")
        since = await card.locator("time").get_attribute("datetime")
        await page.reload()
        await expect(card.locator("time")).to_have_attribute("datetime", since or "")
        await looked_at(page, "without_brokers")
        await page.get_by_role("button", name="Write snapshots").click()
        await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        await asyncio.to_thread(own_broker.restart)
        await says(page, re.compile("Healthy"))
