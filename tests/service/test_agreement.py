"""All processes of an app name the same owner of each partition, whichever is asked, also after a kill."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import httpx2
import pytest

from tests.support import apps
from tests.support.child import Child, Family
from tests.support.stage import Stage

PROCESSES, PARTITIONS = 3, 6


class Owner(NamedTuple):
    """The owner of a partition by the answer of a process."""

    process_id: str | None
    owner_epoch: int | None
    phase: str | None


def owners(child: Child) -> Mapping[int, Owner] | None:
    """The owners that the process names, by partition; None: it does not answer."""
    with suppress(httpx2.HTTPError):
        rows: list[dict[str, Any]] = child.get("/restore-status")["partitions"]
        return {
            row["partition"]: Owner(row["process_id"], row["owner_epoch"], row["phase"])
            if row["process_state"] in ("self", "reachable")
            else Owner(None, None, None)
            for row in rows
        }
    return None


def agreed(asked: list[Child]) -> Mapping[int, Owner] | None:
    """The owners that all of them name; None: their answers differ, or one does not answer."""
    first, *others = map(owners, asked)
    return first if all(each == first for each in others) else None


def all_live(asked: list[Child]) -> Mapping[int, Owner]:
    """Wait until all of them say that all partitions are live; return the owners."""
    found: list[Mapping[int, Owner]] = []

    def are_live() -> bool:
        found[:] = [agreed(asked) or {}]
        return len(found[0]) == PARTITIONS and all(each.phase == "live" for each in found[0].values())

    asked[0].until(are_live, "all say that all are live")
    return found[0]


@pytest.mark.whole
@pytest.mark.kafka
async def test_processes_are_killed_in_turn_and_all_others_agree(children: Family, broker: Any, unique: Any) -> None:
    """The dead process owns nothing any more, and the next claim has a higher epoch."""
    here = await Stage(broker.bootstrap_servers, apps.ledger(unique("truth")), partitions=PARTITIONS).prepare()

    def started(number: int) -> Child:
        child = children.start("ledger", here.app.app_id, instance_id=f"ledger-{number}")
        child.wait_http()
        return child

    running = [await asyncio.to_thread(started, number) for number in range(PROCESSES)]
    for number in range(PROCESSES):
        before = await asyncio.to_thread(all_live, running)
        dead = running[number].get("/api/v1")["process_id"]
        survivors = [each for each in running if each is not running[number]]
        running[number].kill()

        def agree(survivors: list[Child] = survivors, dead: str = dead) -> bool:
            said = agreed(survivors)
            return said is not None and dead not in {each.process_id for each in said.values()}

        await asyncio.to_thread(survivors[0].until, agree, "the others agree")
        running[number] = await asyncio.to_thread(started, number)
        after = await asyncio.to_thread(all_live, running)
        lost = [partition for partition, owner in before.items() if owner.process_id == dead]
        assert lost
        assert all((after[each].owner_epoch or 0) > (before[each].owner_epoch or 0) for each in lost)
    assert [await asyncio.to_thread(each.terminate) for each in running] == [0] * PROCESSES
