"""The page of a process whose input is held back by the transaction of another program, in a real browser."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from playwright.async_api import Page, expect

from snapreplay.api.server import HttpServer
from snapreplay.service.live import recoverability_monitor
from tests.attacks.test_b4_retention import left_open
from tests.page.looking import looked_at, says
from tests.support import apps

pytestmark = pytest.mark.kafka


async def test_who_holds_an_input_back_is_shown(stage: Any, unique: Any, page: Page, monkeypatch: Any) -> None:
    """A card names the transactional id, since when its transaction is open and until when it may be. The partition
    shows both lags. The card is gone when the transaction has ended."""
    monkeypatch.setattr(recoverability_monitor, "WATCH_SECONDS", 0.2)
    here = await stage(apps.ledger(unique("pinned")))
    addresses: list[Any] = []
    async with here.running(http=HttpServer(on_bound=addresses.append)) as service:
        await here.feed(5)
        await here.all_processed(service)
        foreign = await asyncio.to_thread(left_open, here.bootstrap_servers, here.input)
        await here.feed(10)
        await page.goto(f"http://127.0.0.1:{addresses[0].port}/")
        await says(page, re.compile(f"{here.input}-0 delivers nothing"))
        card = page.get_by_role("article", name=f"{here.input}-0 delivers nothing")
        await expect(card).to_contain_text(
            f"of transactional id foreign-{here.input}. 11 offsets wait behind offset 5."
        )
        await expect(card).to_contain_text("at the latest 60 s after its start")
        await page.get_by_role("button", name="Details of partition 0").click()
        row = page.get_by_role("region", name="Inputs of partition 0: table").get_by_role("row").nth(1)
        await expect(row).to_have_text(f"{here.input}550" + "1611")
        await looked_at(page, "held_back")
        await asyncio.to_thread(foreign.abort_transaction, 20)
        await expect(card).to_have_count(0)
