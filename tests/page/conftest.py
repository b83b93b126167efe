"""A real Chromium that looks at the page of real service processes."""

import shutil
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.service.conftest import children, stage
from tests.support.deadlines import scaled

__all__ = ["children", "stage"]

MISSING = "these tests need a Chromium: apt-get install chromium"


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Debian's Chromium: Playwright downloads none. A machine without it fails, so that an untested page
    does not count as tested."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    assert path is not None, MISSING
    async with async_playwright() as playwright:
        # As root, in containers, its sandbox does not start; the only pages here are ours.
        yield await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """An empty tab. What the scripts of a page throw, and what its policy refuses, fails the test."""
    context = await browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-GB", timezone_id="UTC")
    context.set_default_timeout(scaled(30) * 1000)
    expect.set_options(timeout=scaled(30) * 1000)
    page = await context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if "Content Security Policy" in line.text else None)
    yield page
    await context.close()
    assert not wrong
