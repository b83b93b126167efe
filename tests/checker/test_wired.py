"""The checker finds what is lost or twice in a table, an internal topic and the answers of calls; and nothing in what
the real service has written."""

import asyncio
import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.checker import Verdict, app, verify
from tests.checker.wired import CASES, WiredForgery
from tests.support.deadlines import scaled
from tests.support.stage import Stage

pytestmark = pytest.mark.whole
DEADLINE_S = scaled(60.0)


@pytest.fixture(scope="module")
def judged(broker: Any, unique: Callable[[str], str]) -> tuple[str, Verdict]:
    """A partition for each case, all judged at once."""
    app_id = unique("wired")
    WiredForgery(broker.bootstrap_servers, app_id, [case.fault for case in CASES.values()]).tell()
    return app_id, verify(broker.bootstrap_servers, app_id, deadline_seconds=DEADLINE_S, healed=False)


@pytest.mark.parametrize("name", CASES)
def test_each_fault_is_found_and_nothing_else(judged: tuple[str, Verdict], name: str) -> None:
    app_id, verdict = judged
    number = list(CASES).index(name)
    named = re.compile(rf".*{app_id}(-increments|-internal-[a-z-]+)?-{number}(-\d+)?")
    found = [each for each in verdict.violations if named.fullmatch(each.where)]
    assert {each.check for each in found} == CASES[name].breaks, [*map(str, found)]


def test_what_was_looked_at_is_counted(judged: tuple[str, Verdict]) -> None:
    _, verdict = judged
    assert verdict.counts["internal records checked"] > 0
    assert verdict.counts["records without output"] > 0
    assert any("have no answer yet" in each for each in verdict.unchecked)


async def test_what_the_service_writes_holds(broker: Any, unique: Callable[[str], str]) -> None:
    """Through two lives: re-keyed records, a table with tombstones, and calls that are answered."""
    app_id, servers = unique("wired"), broker.bootstrap_servers
    stage = await Stage(servers, app.make(app_id, wired=True), 2, batch={"records_max": 20}).prepare()
    for seed in range(2):
        async with stage.running() as service:
            await asyncio.to_thread(_send, servers, app_id, seed)
            await stage.all_processed(service)
    verdict = await asyncio.to_thread(verify, servers, app_id, deadline_seconds=DEADLINE_S)
    assert verdict.good, str(verdict)
    assert verdict.counts["internal records checked"] > 20
    assert verdict.counts["records without output"] > 20


def _send(servers: str, app_id: str, seed: int) -> None:
    dice, producer = random.Random(seed), Producer({"bootstrap.servers": servers, "acks": "all"})
    for _ in range(150):
        name, number = dice.choice(("payments", "payments", "refunds", "rates")), dice.randrange(20)
        value: Any = {"amount": dice.randrange(100)}
        if name == "payments":
            value |= dice.choice(({}, {"to": f"k{dice.randrange(20)}"}, {"ask": True}))
        elif name == "rates":
            value = dice.choice((None, 2, 3))
        encoded = None if value is None else json.dumps(value).encode()
        producer.produce(f"{name}-{app_id}", encoded, f"k{number}".encode(), partition=number % 2)
    assert producer.flush(DEADLINE_S) == 0
