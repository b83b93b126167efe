"""The reference is what the code is: options of commands, signatures of the Python API."""

from pathlib import Path

import pytest

from tests.docs import reference


@pytest.mark.parametrize("path", reference.PAGES, ids=lambda path: path.name)
def test_a_page_is_what_the_code_makes(path: Path) -> None:
    """Else: `python -m tests.docs.reference`."""
    assert path.read_text(encoding="utf-8") == reference.PAGES[path]()


def test_nothing_public_is_left_out() -> None:
    """Each command has its section, and each option of one of them its row."""
    page = (reference.DOCS / "cli-options.md").read_text(encoding="utf-8")
    sections = dict(each.split("`\n", 1) for each in page.split("\n## `snapreplay ")[1:])
    assert list(sections) == [name for name, _ in reference.commands()]
    for name, command in reference.commands():
        options = [opt for each in command.params if each.name != "help" and not each.hidden for opt in each.opts]
        assert [opt for opt in options if opt.startswith("-") and f"`{opt}`" not in sections[name]] == []
