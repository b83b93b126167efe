"""docs/runbook.md: its commands, typed as they stand, at an app with a dead letter."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.snippets import blocks
from tests.support.stage import until
from tests.support.symptoms import RUNBOOK, rules, written

ELSEWHERE = {
    "snapreplay audit APP --level changes --since-last": (
        "api/cli/test_spark_commands.py",
        '"--since-last", "--master"',
    ),
    "snapreplay retry --url URL --wait": ("hints/test_while_it_runs.py", 'type("retry", "--wait")'),
}
"""Commands that have a test of their own. That of the first looks at the options only: an audit needs Spark."""


def commands() -> list[str]:
    """All lines of the blocks, in order."""
    return [
        line for each in blocks("sh") if each.place.startswith("docs/runbook.md") for line in each.text.splitlines()
    ]


def test_what_is_carried_out_elsewhere_is() -> None:
    """The commands are still on the page, and their tests where they were."""
    assert ELSEWHERE.keys() <= set(commands())
    for file, words in ELSEWHERE.values():
        assert words in (Path(__file__).parents[1] / file).read_text(encoding="utf-8")


def test_each_section_begins_with_what_its_alert_says() -> None:
    """With severity and delay, one section for each alert: `python -m tests.support.symptoms` writes them."""
    text = RUNBOOK.read_text(encoding="utf-8")
    assert written(text) == text
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == [rule["alert"] for rule in rules()]
    for section in text.split("\n## ")[1:]:
        assert re.findall(r"^\*\*(\w+)\.\*\*", section, re.MULTILINE) == ["Symptom", "Meaning", "Safe", "Do"], section


@pytest.mark.kafka
async def test_each_command_of_the_runbook_does_what_it_says(newcomer) -> None:
    """All end well; the dead letter is read and sent back."""
    who = newcomer(errors={"policy": "dead_letter"})
    name = who.here.app.app_id
    who.change(f"apps.ledger({name!r}, apps.refuse_poison)")
    await who.type("topics", "ensure", "hinted:app", "--partitions", "1", "--set", "errors.policy=dead_letter")
    await who.type("init", "hinted:app")
    async with who.served() as service:
        await service.wait_live(60)
        await who.here.send([("k", {"amount": 1}), ("k", {"amount": 2, "poison": True})])
        await until(lambda: service.restore_status()[0].skipped_total == 1, "a dead letter")
        await who.type("pause", "-p", "0", "--reason", "repairs", "--wait")
        said = {}
        for command in commands():
            if command not in ELSEWHERE:
                words = command.replace("APP", "hinted:app").replace(" --url URL", "").split()
                assert words[0] == "snapreplay"
                said[command] = await who.type(*words[1:], code=None if words[1] == "doctor" else 0)
    assert "paused since" in said["snapreplay restore-status --url URL"]
    assert ": 1 live" in said["snapreplay restore-status --url URL"]
    assert said["snapreplay redrive APP"].startswith("sent back")
