"""The changes of a group, as a real process of it tells them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support import apps

pytestmark = pytest.mark.kafka


@pytest.mark.whole
async def test_one_that_leaves_and_one_that_is_killed_are_told_apart(stage: Any, unique: Any, children: Any) -> None:
    """Two processes join a third one. One is stopped, the other killed: the third knows which was which, and the
    generations in which they went."""
    here = await stage(apps.ledger(unique("group")), partitions=3)
    kinds = [children.start("ledger", here.app.app_id, instance_id=name) for name in ("one", "two", "three")]
    one, two, three = kinds
    for each in kinds:
        await asyncio.to_thread(each.wait_live)
    await asyncio.to_thread(one.until, lambda: reachable(one) == 2, "it follows both")

    await asyncio.to_thread(two.terminate)
    await asyncio.to_thread(one.until, lambda: named(one, "left") == {"two"}, "two has left")
    three.kill()
    await asyncio.to_thread(one.until, lambda: named(one, "expelled") == {"three"}, "three is expelled")

    assert named(one, "joined") <= {"two", "three"}
    assert named(one, "gone") == set()
    changes = told(one)
    generations = [each["generation"] for each in changes]
    assert generations == sorted(generations, reverse=True)
    assert (changes[0]["members"], changes[0]["partitions"]) == (1, [0, 1, 2])


def told(child: Any) -> list[Any]:
    (own,) = child.get("/api/v1/group-changes?scope=local")["items"]
    return list(own["changes"])


def named(child: Any, which: str) -> set[str]:
    return {member["instance_id"] for each in told(child) for member in each[which]}


def reachable(child: Any) -> int:
    return sum(each["state"] == "reachable" for each in child.get("/api/v1/processes")["items"])
