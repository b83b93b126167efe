"""Scenario (c): the coordinator expels a member that still works, and somebody else gets its partitions. What the old
owner had sent never becomes visible, and the new one restores exactly."""

import asyncio
import os
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from tests.checker.wire import Claim
from tests.scenarios.conftest import PATIENCE_S
from tests.support.history import History

pytestmark = pytest.mark.timeout(300)

# The zombie must still believe in its transaction when it wakes up: its own deadlines are long. It asks for its commit
# before it gives the partition up, however late that is sent.
PATIENT = {
    "timeouts__commit_ms": 30_000,
    "timeouts__transaction_ms": 60_000,
    "timeouts__revoke_ms": 30_000,
    "group__rebalance_timeout_ms": 60_000,
}
RECORDS = 300


def stop(child: Any) -> None:
    """Stop it as a virtual machine that is moved, or a page fault that takes a minute."""
    os.kill(child.pid, signal.SIGSTOP)


def wake(child: Any) -> None:
    os.kill(child.pid, signal.SIGCONT)


@pytest.mark.whole
async def test_a_stalled_owner_commits_nothing_after_its_successor(ground):
    """Stopped with everything sent and nothing committed, for longer than its session; the successor continues; the old
    one wakes up, asks for its commit, and is refused."""
    here = await ground.ledger("stalled", 2)
    await here.feed(RECORDS)
    gate = ground.gate("EndTxnRequest", passes=6)
    old = ground.start(here, gate=gate, **PATIENT)
    new = await replaced_while_stopped(ground, here, old, gate)
    assert f"process {new.pid} on host" in old.log, "it was told who has replaced it"
    told = await end(ground, here, old, new)
    assert any(each.aborted for each in told), "what it had sent is there, and invisible"


@pytest.mark.whole
async def test_an_owner_stalled_in_its_restore_writes_nothing_after_its_successor(ground):
    """It has fenced, claimed and loaded, and sleeps before it advances: what it restores is no longer the end of the
    log, and its first transaction is refused."""
    here = await ground.ledger("asleep", 2)
    await here.feed(RECORDS)
    child = ground.start(here)
    await ground.took_in(child, RECORDS)
    child.kill()
    gate = ground.gate("Advance")
    old = ground.start(here, gate=gate, **PATIENT)
    new = await replaced_while_stopped(ground, here, old, gate)
    await end(ground, here, old, new)


async def replaced_while_stopped(ground: Any, here: Any, old: Any, gate: Any) -> Any:
    """The owner is stopped where it stands; its successor, returned, continues with new input; then both run."""
    await ground.stands_at(old, gate)
    stop(old)
    new = ground.start(here, instance_id="two")
    await ground.all_live(new, 2)
    await here.feed(RECORDS)
    await ground.took_in(new, 2 * RECORDS)
    gate.open()
    wake(old)
    await both_serve(ground, here, old, new)
    return new


async def both_serve(ground: Any, here: Any, old: Any, new: Any) -> None:
    """Wait until the group has its two members again, and all partitions are LIVE with one of them."""

    def there() -> bool:
        return len(old.live()) == len(new.live()) == 1 and old.live() | new.live() == {0, 1}

    await ground.serves(old)
    await asyncio.to_thread(new.until, there, "one partition with each", PATIENCE_S)
    await here.feed(RECORDS)


async def end(ground: Any, here: Any, old: Any, new: Any) -> Sequence[History]:
    for child in (old, new):
        assert await asyncio.to_thread(child.terminate) == 0
    told: Sequence[History] = await ground.judge(here)
    pids = [owners(each.claims) for each in told]
    assert all(new.pid in each for each in pids)
    assert any(old.pid in each for each in pids)
    return told


def owners(claims: dict[int, Claim]) -> list[int]:
    """Process ids, in the order of their claims."""
    return [claim.pid for claim in claims.values()]
