"""The history of a partition on the page, in a real browser."""

import re
from typing import Any

import pytest
from playwright.async_api import Page, expect

from snapreplay.api.server import HttpServer
from snapreplay.service.clock import wall_time
from snapreplay.service.control.kafka_reads import PartitionHistory, PastOwnership
from snapreplay.service.control.status import Decision
from tests.page.looking import looked_at, opened, says, tab
from tests.support import apps
from tests.support.fake_control import FakeControl
from tests.support.stage import snapshot

pytestmark = pytest.mark.kafka


async def test_owners_and_snapshots_are_a_picture_and_tables(stage: Any, unique: Any, page: Page) -> None:
    """Three processes own the partition one after the other, each takes a snapshot. The page of the last one reads it
    from the log, and shows each claim as a bar, and each snapshot in the chain."""
    here = await stage(apps.ledger(unique("owners")), retention={"snapshots_kept": 5})
    for name in ("ledger-0", "ledger-1"):
        async with here.running(instance_id=name, records=30) as service:
            await snapshot(service)
    addresses: list[Any] = []
    async with here.running(instance_id="ledger-2", http=HttpServer(on_bound=addresses.append), records=30) as service:
        await snapshot(service)
        await page.goto(f"http://127.0.0.1:{addresses[0].port}/")
        await says(page, re.compile("Healthy"))
        await tab(page, "History")
        owners = page.get_by_role("region", name="Owners of partition 0: table")
        for index, name in enumerate(("ledger-2", "ledger-1", "ledger-0"), start=1):
            await expect(owners.get_by_role("row").nth(index)).to_contain_text(name)
        chain = page.get_by_role("region", name="Chain of snapshots of partition 0: table")
        await expect(chain.get_by_text("in use")).to_have_count(3)
        bars = page.locator(".timeline rect")
        assert await bars.count() >= 3
        await expect(page.locator(".timeline rect.present")).to_have_count(1)
        await expect(page.locator(".timeline circle")).to_have_count(3)
        await looked_at(page)


async def test_the_present_owner_has_its_name_without_its_claim(page: Page) -> None:
    """The status names it. Of an earlier owner nothing is known."""
    control = FakeControl()
    now, before = (PastOwnership(epoch, "", "", "", None, 60, wall_time()) for epoch in (130, 7))
    control.histories = PartitionHistory(0, (now, before), (), is_whole=False)
    async with opened(page, control):
        await tab(page, "History")
        owners = page.get_by_role("region", name="Owners of partition 0: table").get_by_role("row")
        await expect(owners.nth(1)).to_contain_text(control.service_facts.instance_id)
        await expect(owners.nth(2)).to_contain_text("claim was trimmed")


async def test_decisions_are_a_table(page: Page) -> None:
    """Newest first, as in the log. Where nothing was decided there is no table."""
    control, at = FakeControl(), wall_time()
    control.histories = PartitionHistory(0, (), (), is_whole=True)
    async with opened(page, control):
        await tab(page, "History")
        await expect(page.get_by_text("No process has claimed it yet.")).to_be_visible()
        table = page.get_by_role("region", name="Decisions of partition 0: table")
        await expect(table).to_have_count(0)
        kept, lost = (
            Decision(offset, batch, finding, f"problem of {finding}", "it continues", "it is known", "ada@host-a", at)
            for offset, batch, finding in ((40, 21, "patch-3"), (30, 17, "input-cut-2"))
        )
        control.histories = PartitionHistory(0, (), (), is_whole=True, decisions=(kept, lost))
        await page.get_by_role("button", name="Read it again").click()
        for index, words in enumerate(("patch-3", "input-cut-2"), start=1):
            row = table.get_by_role("row").nth(index)
            await expect(row).to_contain_text(f"problem of {words}")
            await expect(row).to_contain_text("ada@host-a")
        await looked_at(page)


async def test_what_cannot_be_read_is_said(page: Page) -> None:
    """The reason is below the button, and it can be asked again."""
    control = FakeControl()
    control.histories = None
    async with opened(page, control):
        await tab(page, "History")
        await expect(page.get_by_role("alert")).to_contain_text("its log cannot be read: no broker")
        await expect(page.get_by_role("button", name="Read it again")).to_be_enabled()
