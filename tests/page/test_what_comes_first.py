"""The worst stands first on the page, and hides nothing that is as bad, in a real browser."""

import re
from datetime import timedelta

import msgspec
from playwright.async_api import Page, expect

from snapreplay.service.clock import wall_time
from snapreplay.service.control.protocol import Check
from snapreplay.service.control.status import BlockedTopic, RecoveryStatus, SnapshotState, SnapshotStatus
from snapreplay.service.core.assignment import Copies
from snapreplay.service.core.phase import Phase
from tests.page.looking import details, looked_at, opened, says, tab
from tests.page.test_refusals import of_many
from tests.page.test_until_when import later, restoring
from tests.support.fake_control import FAILED, LIVE, FakeControl, ago
from tests.support.served import peer

NOTED = """() => {
  window.said = [];
  const shown = () => ["h1", ".lane:last-child .badge"].map((at) => document.querySelector(at)?.textContent.trim());
  const all = { childList: true, characterData: true, subtree: true };
  new MutationObserver(() => said.push(shown())).observe(document.body, all);
}"""
"""Keeps each headline, with the word of the last process."""
FIRST_FAILED = msgspec.structs.replace(FAILED, partition=0)


def with_checks(control: FakeControl, *checks: Check) -> FakeControl:
    """Let the process say these of itself."""
    document = control.document
    control.document = lambda: msgspec.structs.replace(document(), ready_checks=checks)  # type: ignore[method-assign]  # as it says
    return control


async def test_an_outage_of_the_brokers_is_not_hidden_by_a_partition_that_is_down(page: Page) -> None:
    """Nothing is processed any more: that is said first, and since when, by a page that was opened later."""
    began = wall_time() - timedelta(minutes=7)
    cut_off = Check("member", ok=False, detail="no broker answers for the app's group", since=began)
    control = of_many(FIRST_FAILED, *(msgspec.structs.replace(LIVE, partition=number) for number in (1, 2)))
    async with opened(page, with_checks(control, cut_off)):
        await says(page, "✕ Process host-a has no contact with the app's group; 1 of 3 partitions is down")
        cards = page.get_by_role("main").locator("article.problem")
        await expect(cards.first).to_have_accessible_name("Process host-a has no contact with the app's group")
        await expect(cards.first.locator("time + small")).to_have_text("7 min ago")
        await expect(cards.last.get_by_text("Where").locator("xpath=following-sibling::dd")).to_have_text("host-a")
        await looked_at(page)


async def test_a_partition_at_risk_is_not_hidden_by_one_that_is_down(page: Page) -> None:
    """The headline has both; what only needs attention stands behind them, and is not counted with them."""
    risk = msgspec.structs.replace(LIVE, partition=2, recoverable=False, unrecoverable_reason="its topic is gone")
    held = msgspec.structs.replace(
        LIVE, partition=1, blocked_by_open_transaction=(BlockedTopic("payments", 500, 40),), recoverable=True
    )
    control = of_many(FIRST_FAILED, held, risk)
    control.peers = (peer("p2", ""),)
    async with opened(page, with_checks(control)):
        await says(page, "✕ 1 of 3 partitions is down; partition 2 is live, but could not be restored now")
        levels = page.get_by_role("main").locator("article.problem .badge")
        await expect(levels).to_have_text(["✕ down", "✕ down", "! attention", "! attention"])


async def test_the_only_copy_of_a_state_is_shown_in_any_phase_of_its_partition(page: Page) -> None:
    """Its alert forbids to stop the process: 'being restored' and 'nothing is lost' would say the opposite."""
    reason = "it exists only in this process's memory"
    held = {"recoverable": False, "unrecoverable_reason": reason}
    waits = msgspec.structs.replace(LIVE, partition=1, phase=Phase.FENCING, **held)
    fenced = msgspec.structs.replace(FIRST_FAILED, phase=Phase.FENCED, **held)
    async with opened(page, with_checks(of_many(fenced, waits))):
        title = "The state of partitions 0 and 1 is only in the memory of their process"
        await says(page, f"✕ 1 of 2 partitions is down; {title[0].lower()}{title[1:]}")
        card = page.get_by_role("article", name=title)
        await expect(card).to_contain_text(f"Partition 0: {reason}")
        await expect(card).to_contain_text("Do not restart it until this card is gone.")
        down = page.get_by_role("article", name="Partition 0 is down")
        await expect(down).to_contain_text("Not yet: the state in memory may be the only copy.")
        await looked_at(page)


async def test_a_process_that_was_just_seen_is_no_outage(page: Page) -> None:
    """It is asked for the first time. If it has not answered after some seconds, that is said."""
    control = of_many(LIVE)
    async with opened(page, with_checks(control)):
        await says(page, re.compile("Healthy"))
        await page.evaluate(NOTED)  # what is said for some seconds may be over when a busy machine looks
        control.peers = (peer("p2", "http://127.0.0.1:9"),)
        await says(page, "✕ Process name-p2 on host-p2 does not answer")
        lane = page.locator(".lane").filter(has_text="name-p2")
        await expect(lane.locator(".badge")).to_have_text("✕ does not answer")
        said = await page.evaluate("said")
        assert ["↻ Process name-p2 on host-p2 has not answered yet", "↻ not reached yet"] in said, said


async def test_of_many_restores_some_are_shown(page: Page) -> None:
    """The rest of the page is not pushed out of reach; what is not restored yet has no size."""
    control = of_many(*(restoring(number, 90.0, later(60.0)) for number in range(12)))
    async with opened(page, with_checks(control)):
        restores = page.get_by_role("region", name="Restores", exact=True)
        await expect(restores.get_by_role("article")).to_have_count(8)
        await restores.get_by_role("button", name="Show all 12 restores").click()
        await expect(restores.get_by_role("article")).to_have_count(12)
        await tab(page, "Partitions")
        await expect(page.locator("#partition-3 td:nth-child(6)")).to_have_text("–")


async def test_what_an_alert_is_about_is_on_the_page(page: Page) -> None:
    """A page with an alert for too few copies, or for snapshots that fail, does not say "Healthy"."""
    failed = SnapshotStatus(0, "77aa", SnapshotState.FAILED, "interval", 55, ago(60), ago(59), error="no space left")
    live = msgspec.structs.replace(LIVE, recoverable=True, snapshot=None)
    control = of_many(*(msgspec.structs.replace(live, partition=number) for number in range(3)))
    document, copies = control.document, Copies(1, 0, "it is the only process of the group")
    control.document = lambda: msgspec.structs.replace(document(), copies=copies)  # type: ignore[method-assign]  # as it says
    async with opened(page, control) as url:
        await says(page, "! Partitions 0–2 have 0 of 1 warm copy")
        await expect(page.get_by_role("main").locator("article.problem")).to_contain_text("the only process")
        control.statuses[0] = msgspec.structs.replace(live, snapshot=failed)
        await says(page, "! The last snapshot of partition 0 has failed, and 1 more")
        card = page.get_by_role("article", name="The last snapshot of partition 0 has failed")
        await expect(card).to_contain_text("No space left")
        command = f"snapreplay trigger-snapshot --wait --url {url}"
        await expect(card.get_by_role("button", name=f"Copy: {command}")).to_be_visible()
        await looked_at(page)


async def test_a_restore_that_has_failed_says_where(page: Page) -> None:
    """It stands at its stage; nothing is said to be proven at its end, or to come from the beginning."""
    run = RecoveryStatus(
        attempts=1, started_at=ago(9), seconds_per_phase={"fencing": 0.1, "claiming": 0.2, "locating": 0.5}
    )
    async with opened(page, of_many(msgspec.structs.replace(FIRST_FAILED, restore=run))):
        detail = await details(page, 0)
        await expect(detail.locator(".stages .done")).to_have_count(2)
        await expect(detail.locator(".stages .failed")).to_contain_text("locating")
        await expect(detail).to_contain_text("Nothing is loaded yet, 1 attempt, not ended. Not proven")
        await looked_at(page)
