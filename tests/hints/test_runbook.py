"""docs/runbook.md: its commands, typed as they stand at an app with a dead letter, and each section in the condition
of its alert."""

import re

from tests.docs.snippets import blocks
from tests.support.deadlines import scaled
from tests.support.stage import until
from tests.support.symptoms import RUNBOOK, rules, written
from tests.support.tampering import delete

ELSEWHERE = ("snapreplay audit APP --level changes", "snapreplay retry --url URL --wait")
"""Commands that have a test of their own."""


def commands() -> list[str]:
    """All lines of the blocks, in order."""
    return [
        line for each in blocks("sh") if each.place.startswith("docs/runbook.md") for line in each.text.splitlines()
    ]


def test_each_section_begins_with_what_its_alert_says() -> None:
    """With severity and delay, one section for each alert: `python -m tests.support.symptoms` writes them."""
    text = RUNBOOK.read_text(encoding="utf-8")
    assert written(text) == text
    assert re.findall(r"^## (Snapreplay.+)$", text, re.MULTILINE) == [rule["alert"] for rule in rules()]
    for section in text.split("\n## Snapreplay")[1:]:
        parts = re.findall(r"^\*\*(\w+)\.\*\*", section.split("\n## ")[0], re.MULTILINE)
        assert [each for each in parts if each != "Meaning"] == ["Symptom", "Safe", "Do"], section


async def test_each_command_of_the_runbook_does_what_it_says(newcomer) -> None:
    """All end well; the dead letter is read and sent back."""
    who = newcomer(errors={"policy": "dead_letter"})
    name = who.here.app.app_id
    who.change(f"apps.ledger({name!r}, apps.refuse_poison)")
    await who.type("topics", "ensure", "hinted:app", "--partitions", "1", "--set", "errors.policy=dead_letter")
    await who.type("init", "hinted:app")
    async with who.served() as service:
        await service.wait_live(scaled(60))
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


async def test_snapshots_that_fail_succeed_again(newcomer) -> None:
    """Their topic is gone: the operation and doctor name it, and it is created as they say."""
    who = newcomer()
    await who.here.prepare()
    async with who.served() as service:
        await service.wait_live(scaled(60))
        await who.here.feed(20)
        await who.here.all_processed(service)
        delete(who.here.bootstrap_servers, who.here.snapshots)
        wait = ("trigger-snapshot", "--wait")
        failed = await who.type(*wait, code=1)
        assert f"topic {who.here.snapshots} no longer exists" in failed
        assert "`snapreplay topics ensure MODULE:APP` creates it" in failed
        assert who.here.snapshots in await who.type("doctor", "hinted:app", code=1)
        await who.type("topics", "ensure", "hinted:app")
        await until(lambda: service.restore_status()[0].recoverable, "recoverable again")
        await who.here.feed(20)
        await who.here.all_processed(service)
        assert "succeeded" in await who.type(*wait)
