"""The drawings of how snapreplay works can be read: on a phone, on a dark page, and by a screen reader."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Page

from tests.page.conftest import browser, page

__all__ = ["browser", "page"]

DOCS = Path(__file__).parents[2] / "docs"
SHOWN = re.findall(r"!\[(.+?)\]\((pictures/\S+\.svg)\)", (DOCS / "how-it-works.md").read_text(encoding="utf-8"))
DRAWN = [*(path for _, path in SHOWN), "pictures/overview.svg"]
PHONE_PX, LETTERS_PX_MIN = 360, 10
BOXES = """svg => [...svg.querySelectorAll("text")].map(each => {
    const box = each.getBoundingClientRect()
    return [each.textContent, box.left, box.top, box.right, box.bottom, parseFloat(getComputedStyle(each).fontSize)]
})"""


@pytest.mark.parametrize("path", DRAWN)
def test_a_picture_is_described_and_brings_its_own_ground(path: str) -> None:
    """A title, a description, a white ground as large as the picture, and nothing from elsewhere."""
    text = (DOCS / path).read_text(encoding="utf-8")
    named = re.findall(r'<(?:title|desc) id="(\w+)">\w', text)
    assert f'role="img" aria-labelledby="{" ".join(named)}"' in text
    size = re.findall(r'viewBox="0 0 (\d+) (\d+)"', text)[0]
    assert '<rect width="{}" height="{}" rx="8" fill="#fff"/>'.format(*size) in text
    assert not re.search(r"href|url\((?!#)|@import|<style|<script", text)


@pytest.mark.parametrize("path", DRAWN)
async def test_every_word_has_room_on_a_phone(path: str, page: Page) -> None:
    """As wide as a small phone, letters are not tiny, and no word leaves the picture or lies on another one."""
    text = (DOCS / path).read_text(encoding="utf-8")
    await page.set_content(f'<body style="margin:0; width:{PHONE_PX}px">{text}<style>svg {{ width: 100% }}</style>')
    words = await page.locator("svg").evaluate(BOXES)
    width = float(re.findall(r'viewBox="0 0 (\d+) \d+"', text)[0])
    assert len(words) > 5
    for number, (word, left, top, right, bottom, size) in enumerate(words):
        assert size * PHONE_PX / width >= LETTERS_PX_MIN, word
        assert left >= 0, word
        assert right <= PHONE_PX, word
        for other, x, y, x_end, y_end, _ in words[:number]:
            beside, above = x >= right or left >= x_end, y + 2 > bottom or top + 2 > y_end  # boxes of lines may touch
            assert beside or above, (word, other)


def test_the_page_has_them_with_words_in_their_place() -> None:
    """Whoever cannot see a picture reads a sentence instead."""
    assert len(SHOWN) == 4
    assert all(len(words.split()) > 8 for words, _ in SHOWN)
