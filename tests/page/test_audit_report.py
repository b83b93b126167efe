"""The report of an audit as a page, in a real browser: with findings, and without any."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from snapreplay.api.audit_page import page as written
from snapreplay.snapshots.proof.report import RecordedDecision, Violation
from tests.api.test_audit_page import LOG, SNAPS, chain, report
from tests.page.looking import looked_at

FINDINGS = [
    Violation("replay", LOG, 1, 25_000, "batch 7700: key 'account-17': recorded 3, replayed 4"),
    Violation("chunks", SNAPS, 1, 52, "chunk 0 of snapshot s5: crc32 differs"),
]
DECIDED = RecordedDecision(0, 12_700, "input-gap-3f9a12bc", "2026-11-18T09:30:12Z", "the topic was trimmed", "ada")


@pytest.mark.parametrize("findings", [FINDINGS, []], ids=["findings", "none"])
async def test_everybody_can_read_it(page: Page, findings: list[Violation]) -> None:
    """On a phone, in the dark and by a screen reader. Its own policy lets nothing be loaded."""
    doubtful = {"proven": None} if findings else {}
    chains = [chain(0, audited_from=16_000), chain(1, **doubtful), chain(2)]
    await page.set_content(written(report(chains, findings, level="changes", decisions=[DECIDED], since_last=True)))
    await expect(page.get_by_role("heading", level=1)).to_have_text("2 findings" if findings else "No findings")
    await looked_at(page, "audit" if findings else "audit_whole")
