"""Tests of the way from FAILED back, by what the hint of the partition says: each way of it, typed as printed.

The ways by `accept` for every kind of finding are in tests/attacks, B3; here are the other ways, and what is printed
where no acceptance could succeed.
"""

import re
from typing import Any

import pytest

from snapreplay.service.topics.requirements import KEPT_FOR_EVER
from snapreplay.snapshots.format.envelope import RecordKind
from snapreplay.state.digest import Digest
from tests.hints.following import way_with, ways
from tests.support.tampering import bring_back, recreate, tamper, trim, with_fields

pytestmark = pytest.mark.whole

LEAN = {"changelog": {"enabled": False}}
WRONG = Digest(20, 1, 2)


def ledger(then: Any, options: str) -> str:
    return f"apps.ledger({then.here.app.app_id!r}, {options})"


# ------------------------------------------------------------------------------ changed code


async def test_a_digest_that_differs_leads_to_the_other_mode_and_on(operator):
    """What was recorded is wrong itself: the other mode finds the same, and its hint has the acceptance that works."""
    then, who = await operator()
    await tamper(then.here, then.increments, RecordKind.INCREMENT, with_fields(digest=WRONG), -2)
    who.settings["restore"] = {"mode": "changes"}
    await who.follow(way_with(await who.failure(), "--set restore.mode=replay"))
    hint = await who.failure()
    await who.follow(way_with(hint, "snapreplay accept"))
    await who.healthy()


# ------------------------------------------------------------------------------ inputs


async def test_the_state_is_taken_along_to_a_new_app_id(operator):
    """InputTrimmed: `--state-of`, as printed; every record that is there counts once."""
    then, who = await operator()
    await then.here.feed(20)
    trim(then.here.bootstrap_servers, then.input, 0, 130)
    await who.follow(way_with(await who.failure(), "--state-of"))
    async with who.running() as service:
        assert service.view(0)["k0"]["n"] == 6


async def test_other_inputs_take_the_state_along_or_go_back(operator):
    """WrongLog: the old inputs again, or a new id that begins with the state."""
    then, who = await operator()
    name = then.here.app.app_id
    other = f"apps.heir(apps.ledger({name!r}), {name!r}, inputs=[Topic({name + '-other'!r})])"
    who.change(other)
    await who.type("topics", "ensure", "hinted:app", "--partitions", "1")
    hint = await who.refused()
    await who.follow(way_with(hint, "--state-of"))
    async with who.running() as service:
        assert service.view(0)["k0"]["n"] == 6
    who.change(f"apps.ledger({name!r})")
    await who.healthy()


# ------------------------------------------------------------------------------ nothing to accept


async def lose_snapshots(then: Any) -> None:
    recreate(then.here.bootstrap_servers, then.snapshots, 1, KEPT_FOR_EVER)


async def trimmed_increments(then: Any) -> None:
    (log,) = await then.here.read(then.increments)
    trim(then.here.bootstrap_servers, then.increments, 0, log[-1].offset)


async def test_topics_are_brought_back_from_a_backup(operator):
    """Every record at its old offset: what "restore the topics" means, and it is enough."""
    then, who = await operator()
    (snapshots,) = await then.here.read(then.snapshots)
    (backup,) = await then.here.read(then.increments)
    await trimmed_increments(then)
    await lose_snapshots(then)
    hint = await who.failure()
    assert re.search(r"(^|; or )(bring|restore) .* from a backup or mirror", hint)
    bring_back(then.here.bootstrap_servers, then.increments, backup)
    bring_back(then.here.bootstrap_servers, then.snapshots, snapshots)
    async with who.running() as service:
        assert service.view(0)["k0"]["n"] == 6


async def broken_chain(then: Any) -> None:
    await tamper(then.here, then.increments, RecordKind.INCREMENT, with_fields(batch=6), -2)


@pytest.mark.parametrize("make", [trimmed_increments, broken_chain])
async def test_without_a_snapshot_no_acceptance_is_printed_and_a_new_app_id_works(operator, make):
    """NoUsableSnapshot, BrokenChain and their like: looked for before it is said; the way that is left works."""
    then, who = await operator()
    await make(then)
    await lose_snapshots(then)
    hint = await who.failure()
    assert "snapreplay accept" not in hint
    await who.follow(way_with(hint, "under a new app id"))
    async with who.running() as service:
        assert service.view(0)["k0"]["n"] == 6


# ------------------------------------------------------------------------------ records, people


async def test_a_record_that_cannot_be_processed_goes_to_the_dead_letters(newcomer):
    """HandlerFailed: the last way of the hint continues behind the record."""
    who = newcomer()
    await who.here.prepare()
    name = who.here.app.app_id
    who.change(f"apps.ledger({name!r}, lambda value, account: apps.refuse_poison(value, account))")
    await who.here.send([("k0", {"amount": 1}), ("k0", {"amount": 2, "poison": True})])
    hint = ways(await who.failure())[2]
    await who.follow(hint)
    async with who.running() as service:
        assert service.view(0)["k0"] == {"n": 1, "sum": 1}
