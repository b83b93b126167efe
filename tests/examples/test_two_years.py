"""docs/internals/two-years.md on a real broker: an app is upgraded, inputs come and go, an entry is corrected, and its
process is killed in between. After each step the state is the one that plain Python folds."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import snapreplay.spark
from examples.demo.data import rows
from snapreplay.devbroker.broker import LocalBroker
from tests.support import reference
from tests.support.child import ROOT, Child
from tests.support.deadlines import scaled
from tests.support.tampering import create

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

SEED = 20130101
PARTITIONS = 2
VERSIONS = {number: f"examples/two_years/version_{number}.py" for number in (1, 2, 3)}
MANY_BATCHES: dict[str, Any] = {
    "batch__records_max": 10,  # so that a kill finds many
    "snapshot__every_records": 60,
    "retention__snapshots_kept": 100,  # the audit at the end is to see the whole log
}
Flights = list[tuple[str, dict[str, Any]]]


def flights_of(carrier: str, count: int) -> Flights:
    """The first flights of a carrier in 2013: their destinations, and what the table says of them."""
    found = (json.loads(row.value) for row in rows(60_000))
    return [(each["dest"], each) for each in found if each["carrier"] == carrier][:count]


def in_hours(flights: Flights) -> dict[str, Any]:
    """The state of version 1, by hand."""
    state: dict[str, Any] = {}
    for dest, flight in flights:
        there = state.setdefault(dest, {"flights": 0, "hours": 0.0})
        there["flights"] += 1
        there["hours"] += (flight["air_time"] or 0) / 60
    return state


def in_minutes(flights: Flights) -> dict[str, Any]:
    """The state of versions 2 and 3, by hand."""
    counts = Counter(dest for dest, _ in flights)
    return {
        dest: {"flights": count, "minutes": sum(each["air_time"] or 0 for to, each in flights if to == dest)}
        for dest, count in counts.items()
    }


class Operator:
    """Types commands, starts versions and kills them at moments that the seed draws."""

    def __init__(self, servers: str, folder: Path, spark: Any) -> None:
        print(f"seed {SEED}")  # noqa: T201 - shown when the test fails
        self.servers, self._folder, self._spark = servers, folder, spark
        self._dice, self._started = random.Random(SEED), 0
        self.ends: Counter[tuple[str, int]] = Counter()

    async def types(self, command: str, code: int = 0) -> str:
        """A command as the page shows it."""
        words = [sys.executable, "-m", "snapreplay.api.cli", *command.split()]
        done = await asyncio.to_thread(
            subprocess.run,
            [*words, "--bootstrap-servers", self.servers],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=scaled(120),
            check=False,
        )
        assert done.returncode == code, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout or done.stderr

    async def feeds(self, carrier: str, flights: Flights) -> None:
        await asyncio.to_thread(reference.send, self.servers, f"flights-{carrier}", PARTITIONS, flights)
        for dest, _ in flights:
            self.ends[f"flights-{carrier}", reference.partition_of(dest.encode(), PARTITIONS)] += 1

    async def creates(self, topic: str) -> None:
        await asyncio.to_thread(create, self.servers, topic, PARTITIONS)

    @asynccontextmanager
    async def running(self, version: int, kills: int = 0) -> AsyncIterator[Child]:
        """This version, which is killed at the end; before that as often at any moment, a recovery included."""
        for _ in range(kills):
            child = self._start(version)
            try:
                await asyncio.to_thread(child.wait_http)
                await asyncio.sleep(self._dice.uniform(0.0, 1.2))  # the moment of a kill is a time, not a condition
            finally:
                child.kill()
        child = self._start(version)
        try:
            yield child
        finally:
            child.kill()

    def _start(self, version: int) -> Child:
        self._started += 1
        log = self._folder / f"process-{self._started}.log"
        return Child(self.servers, "", "", log, ROOT / VERSIONS[version], **MANY_BATCHES)

    async def all_processed(self, child: Child, inputs: Iterable[str]) -> None:
        """Wait until all flights of these inputs, and of no other, are committed."""
        wanted = {place: end for place, end in self.ends.items() if place[0] in inputs}

        def there() -> bool:
            items = child.get("/api/v1/partitions")["items"]
            found = {(each["topic"], item["partition"]): each["position"] for item in items for each in item["inputs"]}
            return found == wanted

        await asyncio.to_thread(child.wait_live, PARTITIONS)
        await asyncio.to_thread(child.until, there, f"{wanted} committed", 60.0)

    async def view(self, name: str) -> list[Any]:
        """One of Spark's views; the state is proven by the digest of the last batch."""
        reader = self._spark.read.format("snapreplay").option("app.id", "two-years").option("view", name)
        found = reader.option("kafka.bootstrap.servers", self.servers).load()
        return list(await asyncio.to_thread(found.collect))

    async def state(self) -> dict[str, Any]:
        return {json.loads(row.key): json.loads(row.value) for row in await self.view("state")}

    async def audit(self) -> Any:
        return json.loads(await self.types(f"audit {VERSIONS[3]} --level replay --output json"))


@pytest.fixture
async def operator(tmp_path: Path, spark: Any) -> AsyncIterator[Operator]:
    """An operator of a broker of its own, which has the names of the page."""
    snapreplay.spark.register(spark)
    async with LocalBroker(deadline_s=scaled(60)) as broker:
        yield Operator(broker.bootstrap_servers, tmp_path, spark)


async def test_two_years(operator: Operator, tmp_path: Path) -> None:
    """The story of the page, step by step; at the end the whole log is without a finding."""
    airtran, southwest = flights_of("FL", 360), flights_of("WN", 600)
    await the_first_day(operator, airtran[:200])
    await hours_become_minutes_and_a_carrier_appears(operator, airtran, southwest)
    await a_carrier_is_gone(operator, airtran, southwest)
    await an_entry_is_wrong(operator, airtran + southwest[:400], tmp_path)
    await operator.feeds("WN", southwest[400:])
    async with operator.running(3, kills=2) as child:
        await operator.all_processed(child, ["flights-WN"])
        assert await asyncio.to_thread(child.terminate) == 0
    corrected = in_minutes(airtran + southwest)
    corrected["ATL"]["minutes"] -= 6
    assert await operator.state() == corrected
    await assert_told_truly(operator)
    await assert_exactly_once(operator, airtran + southwest)


async def the_first_day(operator: Operator, airtran: Flights) -> None:
    await operator.types(f"topics ensure {VERSIONS[1]} --create-inputs {PARTITIONS}")
    await operator.types(f"init {VERSIONS[1]}")
    await operator.feeds("FL", airtran)
    async with operator.running(1, kills=2) as child:
        await operator.all_processed(child, ["flights-FL"])
    assert await operator.state() == in_hours(airtran)


async def hours_become_minutes_and_a_carrier_appears(operator: Operator, airtran: Flights, southwest: Flights) -> None:
    async with operator.running(2, kills=2) as child:
        await operator.all_processed(child, ["flights-FL"])
        assert await operator.state() == in_minutes(airtran[:200])
        await operator.feeds("FL", airtran[200:300])
        await operator.all_processed(child, ["flights-FL"])
        assert await operator.state() == in_minutes(airtran[:300])
        await operator.creates("flights-WN")
        await operator.feeds("WN", southwest[:200])
        await operator.all_processed(child, ["flights-FL", "flights-WN"])
    assert await operator.state() == in_minutes(airtran[:300] + southwest[:200])


async def a_carrier_is_gone(operator: Operator, airtran: Flights, southwest: Flights) -> None:
    """Retired when it is drained, and not before. Its batches are no finding for the version that does not know it."""
    await operator.feeds("FL", airtran[300:])
    said = await operator.types(f"inputs {VERSIONS[3]} --yes", code=4)
    assert "is not processed to its end" in said
    async with operator.running(2, kills=1) as child:
        await operator.all_processed(child, ["flights-FL", "flights-WN"])
    said = await operator.types(f"inputs {VERSIONS[3]} --yes --reason merged")
    assert said.count("input flights-FL is retired at offset") == PARTITIONS
    del operator.ends["flights-FL", 0], operator.ends["flights-FL", 1]
    assert await operator.state() == in_minutes(airtran + southwest[:200])
    await operator.feeds("WN", southwest[200:400])
    async with operator.running(3, kills=2) as child:
        await operator.all_processed(child, ["flights-WN"])
    assert await operator.state() == in_minutes(airtran + southwest[:400])
    report = await operator.audit()
    assert report["findings"] == []
    assert report["notes"]["segments_without_input"] > 0, "of flights-FL"


async def an_entry_is_wrong(operator: Operator, flown: Flights, folder: Path) -> None:
    """Corrected while the app runs, taken back, and corrected again."""
    is_wrong, lines = in_minutes(flown)["ATL"], folder / "patch.jsonl"

    async def corrected_by(minutes: int, reason: str) -> None:
        line = {"key": "ATL", "expected": is_wrong, "value": is_wrong | {"minutes": is_wrong["minutes"] - minutes}}
        lines.write_text(json.dumps(line))
        await operator.types(f"patch {VERSIONS[3]} {lines} --yes --reason {reason} --undo {folder / reason}")
        assert await operator.state() == in_minutes(flown) | {"ATL": line["value"]}

    async with operator.running(3, kills=1):
        await corrected_by(60, "ticket-17")
        await operator.types(f"patch {VERSIONS[3]} {folder / 'ticket-17'} --yes")
        assert await operator.state() == in_minutes(flown)
        await corrected_by(6, "ticket-18")


async def assert_told_truly(operator: Operator) -> None:
    """No finding in the whole log; the decisions in order, in the report and in the view."""
    report = await operator.audit()
    assert report["findings"] == []
    every = ["state-upgraded", "inputs-changed", "inputs-changed"]
    patched = reference.partition_of(b"ATL", PARTITIONS)
    expected = {number: every + ["state-patched"] * 3 * (number == patched) for number in range(PARTITIONS)}
    told: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}
    for each in report["decisions"]:
        told[each["partition"]].append(each["finding"].rpartition("-")[0])
    assert told == expected
    reasons = [each["reason"] for each in report["decisions"] if each["finding"].startswith("state-patched-")]
    assert reasons == ["ticket-17", "takes back: ticket-17", "ticket-18"]
    increments = sorted(await operator.view("increments"), key=lambda row: (row.partition, row.batch))
    listed = [(row.partition, dict(row.decision)["finding"]) for row in increments if row.decision]
    assert listed == [(each["partition"], each["finding"]) for each in report["decisions"]]


async def assert_exactly_once(operator: Operator, flown: Flights) -> None:
    """Each output has the number of its flight: to each destination 1, 2, 3, …, whichever version has sent it."""
    outputs = await asyncio.to_thread(reference.committed, operator.servers, "destinations", PARTITIONS)
    numbers: dict[str, list[int]] = {}
    for part in outputs:
        for dest, value in reference.decoded(part):
            numbers.setdefault(dest, []).append(value["flights"])
    counts = Counter(dest for dest, _ in flown)
    assert numbers == {dest: list(range(1, count + 1)) for dest, count in counts.items()}
