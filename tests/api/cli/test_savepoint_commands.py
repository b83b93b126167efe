"""savepoint and delete as they are typed: what they print, ask and write. What they do to the topics:
tests/service/decisions."""

import asyncio
import json
from functools import partial

import pytest

from snapreplay.app import names
from tests.api.cli.test_repair_commands import answered
from tests.docs.outputs import not_printed

FED = "\n".join(f'{{"key": "k{number}", "value": {{"amount": {number + 20}}}}}' for number in range(20))


CREATE = 'snapreplay savepoint create ledger.py before-fix --reason "ticket 17"'
RESET = 'snapreplay reset ledger.py --savepoint before-fix --reason "ticket 17"'
DELETE = "snapreplay delete ledger"


def as_on_the_page(desk, said):
    """Name app, input and savepoint as docs/operators.md and docs/cli.md do; a terminal shows the answers, too."""
    pages = {
        f"{desk.name}-in:": "payments:",
        desk.name: "ledger",
        "savepoint before ": "savepoint before-fix ",
        "[y/N]: ": "[y/N]: y\n",
        "to delete it: ": "to delete it: ledger\n",
    }
    for printed, page in pages.items():
        said = said.replace(printed, page)
    return said


def words_of(desk, *typed):
    return [*typed, "--bootstrap-servers", desk._broker.bootstrap_servers]


@pytest.fixture
def typing(desk, invoke):
    """`await typing("savepoint", "list", file)`: the command in this process, and its exit code as expected."""

    async def type_(*typed, code=0):
        done = await asyncio.to_thread(partial(invoke, *words_of(desk, *typed)))
        assert done.exit_code == code, done.output
        return done

    return type_


async def test_a_savepoint_from_its_beginning_to_its_end(desk, typing, tmp_path):
    """Created beside the running app, listed, shown, the beginning of another app, and dropped after it was asked."""
    async with desk.harness() as harness:
        await desk.type("feed", f"{desk.name}-in", stdin=FED)
        await harness.caught_up()
        made = await typing("savepoint", "create", desk.file, "before", "--reason", "ticket 17", "-o", "json")
        state = await harness.state(0), await harness.state(1)
    document = json.loads(made.stdout)
    assert (document["savepoint"], document["usable"], document["reason"]) == ("before", True, "ticket 17")
    assert [part["entries"] for part in document["partitions"]] == [len(each) for each in state]
    taken = await typing("savepoint", "create", desk.file, "before", code=2)
    assert "hint: use another name; or first `snapreplay savepoint drop fed_ledger:app before`" in taken.stderr
    listed = await typing("savepoint", "list", desk.file)
    assert "ticket 17" in listed.stdout
    assert json.loads((await typing("savepoint", "list", desk.file, "-o", "json")).stdout) == document
    shown = await typing("savepoint", "show", desk.file, "before")
    assert f"{desk.name}-in: " in shown.stdout
    other = tmp_path / "heir.py"
    other.write_text(desk.file.read_text().replace(f'App("{desk.name}"', f'App("{desk.name}-2"'))
    await typing("topics", "ensure", other)
    alone = await typing("init", other, "--savepoint", "before", code=2)
    assert "needs the app that it is of" in alone.stderr
    unknown = await typing("init", other, "--state-of", desk.name, "--savepoint", "after", code=2)
    assert f"app {desk.name} has no savepoint after; its savepoints: before" in unknown.stderr
    begun = await typing("init", other, "--state-of", desk.name, "--savepoint", "before")
    assert begun.stdout.count(f"begins with the state of app {names.savepoint_id(desk.name, 'before')}") == 2
    drop = words_of(desk, "savepoint", "drop", desk.file, "before")
    said, code = await asyncio.to_thread(answered, drop, b"n\n")
    assert (said.endswith("nothing was changed"), code) == (True, 2)
    assert (await asyncio.to_thread(answered, drop, b"y\n"))[1] == 0
    assert (await typing("savepoint", "list", desk.file, "-o", "json")).stdout == ""
    assert "no savepoint before" in (await typing("savepoint", "drop", desk.file, "before", "--yes", code=2)).stderr


@pytest.mark.whole
async def test_a_stopped_app_is_set_back(desk, typing):
    """Shown, asked for, done in each partition, and there is nothing left to do."""
    async with desk.harness() as harness:
        await desk.type("feed", f"{desk.name}-in", stdin=FED)
        await harness.caught_up()
        made = await typing("savepoint", "create", desk.file, "before")
        assert not not_printed(CREATE, as_on_the_page(desk, made.stdout))
        assert f"app {desk.name} runs" in (await typing("reset", desk.file, "--from", "earliest", "-y", code=4)).stderr
        await harness.stop()
    dry = await typing("reset", desk.file, "--from", "earliest", "--dry-run")
    assert dry.stdout.count("resumes with an empty state, from earliest (0 entries") == 2
    assert dry.stdout.endswith("dry run: nothing was written\n")
    back = words_of(desk, "reset", desk.file, "--savepoint", "before", "--reason", "ticket 17")
    said, code = await asyncio.to_thread(answered, back, b"n\n")
    assert (said.endswith("nothing was changed"), code) == (True, 2)
    done = await typing(*back[:-2], "--dry-run", "-o", "json")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["partition"], each["decision"]["reason"], each["dry_run"]) for each in told] == [
        (0, "ticket 17", True),
        (1, "ticket 17", True),
    ]
    said, code = await asyncio.to_thread(answered, back, b"y\n")
    assert (code, not_printed(RESET, as_on_the_page(desk, said))) == (0, [])
    assert (await typing(*back[:-2], "--yes")).stdout.count("is there already") == 2


@pytest.mark.whole
async def test_an_app_is_deleted_after_its_id_was_typed(desk, typing):
    """Shown, refused with another id, by an option or in the terminal, and done. Then there is nothing to delete."""
    async with desk.harness() as harness:
        await desk.type("feed", f"{desk.name}-in", stdin=FED)
        await harness.caught_up()
        assert f"app {desk.name} runs" in (await typing("delete", desk.name, "--yes", desk.name, code=4)).stderr
        await harness.stop()
    dry = await typing("delete", desk.name, "--dry-run")
    deleted = [f"deletes {name}" for name in names.own_pair(desk.name)]
    kept = f"keeps {names.dead_letters_topic(desk.name)}"
    assert dry.stdout.splitlines() == [*deleted, kept, "dry run: nothing was deleted"]
    wrong = await typing("delete", desk.name, "--yes", "ledger", code=2)
    assert f"--yes ledger is not the app id {desk.name}" in wrong.stderr
    unasked = await typing("delete", desk.name, code=2)
    assert "there is no terminal to ask" in unasked.stderr
    delete = words_of(desk, "delete", desk.name)
    said, code = await asyncio.to_thread(answered, delete, b"yes\n")
    assert (said.endswith("nothing was changed"), code) == (True, 2)
    said, code = await asyncio.to_thread(answered, delete, f"{desk.name}\n".encode())
    assert (said.endswith(f"deleted app {desk.name}: 2 topics"), code) == (True, 0)
    only_there = [f"keeps ledger-savepoint-before-fix-{which}" for which in ("increments", "snapshots")]
    assert not_printed(DELETE, as_on_the_page(desk, said)) == only_there
    gone = await typing("delete", desk.name, "--yes", desk.name, code=2)
    assert f"there is no app {desk.name} in this cluster; only these topics of it exist:" in gone.stderr
    last = await typing("delete", desk.name, "--yes", desk.name, "--dead-letters", "-o", "json")
    assert json.loads(last.stdout) == {"deleted": [names.dead_letters_topic(desk.name)], "kept": [], "dry_run": False}
