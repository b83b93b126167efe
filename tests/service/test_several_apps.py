"""Several apps in one process: what one sends the other reads; one port, one stop; and what the end of one does."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from snapreplay import App, MapState, Topic
from tests.support import apps, reference
from tests.support.child import ROOT, Child, Family, Load
from tests.support.deadlines import scaled
from tests.support.stage import Stage
from tests.support.waiting import eventually

PROGRAM = """
from tests.service.test_several_apps import second
from tests.support import apps

app = {made}
"""
PARTITIONS = 2


def second(name: str, of_first: str) -> App[Any]:
    """Folds the balances that the first app sends; the result depends on the order of every record."""
    balances, folds = Topic(f"balances-{of_first}"), Topic(f"folds-{name}")
    app: App[Any] = App(name, inputs=[balances], outputs=[folds], state=lambda: MapState(str, int, default=int))

    @app.handler(balances)
    def on_balance(record: Any, state: Any, out: Any) -> None:
        state[record.key] = folded(state[record.key], record.value)
        out.send(folds, key=record.key, value={"id": record.value["id"], "fold": state[record.key]})

    return app


def folded(before: int, balance: dict[str, Any]) -> int:
    return int(before * 31 + balance["sum"] + 1) % apps.MODULUS


class Two(NamedTuple):
    """Two apps, each in a file of its own, and the stage of the first one."""

    first: str
    second: str
    files: tuple[str, str]
    here: Stage

    def start(self, children: Family, **settings: Any) -> Child:
        program, other = self.files
        return children.start("ledger", self.first, program=Path(program), options=[other], **settings)


Making = Callable[..., Two]


@pytest.fixture
def two(broker: Any, unique: Callable[[str], str], tmp_path: Path) -> Making:
    def make(rule: str = "add") -> Two:
        first_id, second_id = unique("first"), unique("second")
        files = tmp_path / "one.py", tmp_path / "two.py"
        files[0].write_text(PROGRAM.format(made=f"apps.ledger({first_id!r}, apps.{rule})"))
        files[1].write_text(PROGRAM.format(made=f"second({second_id!r}, {first_id!r})"))
        here = Stage(broker.bootstrap_servers, apps.ledger(first_id), PARTITIONS)
        return Two(first_id, second_id, (str(files[0]), str(files[1])), here)

    return make


def command(*words: str, servers: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "snapreplay.api.cli", *words, "--bootstrap-servers", servers],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def prepared(two: Two) -> None:
    """Make topics and genesis of both by one command each, whose lines name the app."""
    servers = two.here.bootstrap_servers
    ensured = command("topics", "ensure", *two.files, "--partitions", str(PARTITIONS), servers=servers)
    begun = command("init", *two.files, servers=servers)
    for done in (ensured, begun):
        assert done.returncode == 0, done.stderr
        assert {line.partition(": ")[0] for line in done.stdout.splitlines()} == {two.first, two.second}


def by_hand(two: Two) -> tuple[list[list[Any]], list[list[Any]]]:
    """Read the outputs of the second app, and fold its inputs by hand from those of the first; by partition."""
    servers = two.here.bootstrap_servers
    payments = reference.committed(servers, f"payments-{two.first}", PARTITIONS)
    balances, _ = reference.balances(f"payments-{two.first}", payments, apps.add)
    expected = []
    for sent in balances:
        state: dict[str, int] = {}
        folds = []
        for key, balance in sent:
            state[key] = folded(state.get(key, 0), balance)
            folds.append((key, {"id": balance["id"], "fold": state[key]}))
        expected.append(folds)
    found = reference.committed(servers, f"folds-{two.second}", PARTITIONS)
    return [[((r.key or b"").decode(), json.loads(r.value or b"")) for r in each] for each in found], expected


def is_in_log(child: Child, text: str) -> bool:
    return text in child.log


def folded_by(child: Child, two: Two) -> int:
    """Return the sum of the positions of the second app. To read all topics at each look takes more CPU."""
    items = child.get(f"/apps/{two.second}/api/v1/partitions?scope=local")["items"]
    return sum(each["inputs"][0]["position"] for each in items)


def is_whole(two: Two) -> bool:
    found, expected = ([len(each) for each in side] for side in by_hand(two))
    return found == expected


async def test_the_outputs_of_one_are_the_inputs_of_the_other(two: Making, children: Family) -> None:
    """Through a SIGKILL under load each record counts once in both. Each line about a partition says of which app, and
    so does each task; SIGTERM ends both."""
    it = two()
    await asyncio.to_thread(prepared, it)
    with Load(it.here):
        child = it.start(children, snapshot__every_records=200)
        await asyncio.to_thread(child.wait_http)
        await asyncio.to_thread(child.until, lambda: folded_by(child, it) > 100, "folds")
        child.kill()
        again = it.start(children, snapshot__every_records=200)
    await asyncio.to_thread(again.wait_http)
    await asyncio.to_thread(again.until, again.is_ready, "both live")
    sent = [len(each) for each in reference.committed(it.here.bootstrap_servers, it.here.input, PARTITIONS)]
    await asyncio.to_thread(again.until, lambda: folded_by(again, it) >= sum(sent), "all of it")
    await asyncio.to_thread(eventually, lambda: is_whole(it), "all of it")
    found, expected = by_hand(it)
    assert found == expected
    for app_id in (it.first, it.second):
        facts = again.get(f"/apps/{app_id}/api/v1")
        assert (facts["app_id"], facts["partition_count"]) == (app_id, PARTITIONS)
    again.process.send_signal(signal.SIGUSR1)
    for app_id in (it.first, it.second):
        again.until(partial(is_in_log, again, f"task {app_id}: partition-0"), "both in the dump")
    assert await asyncio.to_thread(again.terminate) == 0
    told = [line for line in again.log.splitlines() if re.search(r"partitions? [\d\[]", line)]
    named = {line: re.search(r"snapreplay[a-z.]*: (\S+): ", line) for line in told}
    assert [line for line, found in named.items() if found is None] == []
    assert {found[1] for found in named.values() if found} == {it.first, it.second}


@pytest.mark.whole
async def test_both_apps_of_a_killed_process_are_taken_over_from_warm_copies(two: Making, children: Family) -> None:
    """Under load, by the only other process, which has followed both; each record counts once in both."""
    it = two()
    await asyncio.to_thread(prepared, it)

    def start(name: str) -> Child:
        return it.start(children, standby__replicas=1, instance_id=name)

    def has(child: Child, app_id: str, what: str, count: int) -> bool:
        of_app = child.get(f"/apps/{app_id}/restore-status?scope=local")
        found = [*of_app["partitions"], *of_app["standbys"]]
        return [each.get("phase", each.get("state")) for each in found].count(what) == count

    def reaches(child: Child, app_id: str) -> bool:
        found = child.get(f"/apps/{app_id}/api/v1/processes")["items"]
        return sorted(each["state"] for each in found) == ["reachable", "self"]

    with Load(it.here, pause_s=0.05):
        one = start("one")
        await asyncio.to_thread(one.wait_http)
        await asyncio.to_thread(one.until, one.is_ready, "both apps live")
        other = start("other")
        await asyncio.to_thread(other.wait_http)
        for app_id in (it.first, it.second):  # each has one of the two partitions, and a copy of the other one
            for child in (one, other):
                for what in ("live", "warm"):
                    await asyncio.to_thread(child.until, partial(has, child, app_id, what, 1), f"{what}: {app_id}")
            await asyncio.to_thread(
                other.until, partial(reaches, other, app_id), f"a stream of the other one: {app_id}"
            )
        one.kill()
        for app_id in (it.first, it.second):
            await asyncio.to_thread(other.until, partial(has, other, app_id, "live", PARTITIONS), f"all of {app_id}")
            assert re.search(rf"{app_id}: process .* seems to be dead: .*1 partition taken over", other.log)
    await asyncio.to_thread(eventually, lambda: is_whole(it), "all of it")
    found, expected = by_hand(it)
    assert found == expected
    assert await asyncio.to_thread(other.terminate) == 0


@pytest.mark.whole
async def test_a_failed_partition_of_one_app_does_not_disturb_the_other(two: Making, children: Family) -> None:
    """The process is not ready, the other app is; it runs until it is stopped, and ends with 0."""
    it = two("refuse_poison")
    await asyncio.to_thread(prepared, it)
    child = it.start(children)
    await asyncio.to_thread(child.wait_http)
    await asyncio.to_thread(child.until, child.is_ready, "both live")
    await it.here.send([("0:a", {"amount": 1}), ("1:b", {"amount": 1}), ("1:b", {"amount": 1, "poison": True})])

    def phases() -> list[str]:
        return [each["phase"] for each in child.get(f"/apps/{it.first}/restore-status")["partitions"]]

    await asyncio.to_thread(child.until, lambda: phases() == ["live", "failed"], "one failed")
    await it.here.send([("0:a", {"amount": 1})])
    await asyncio.to_thread(child.until, lambda: [len(each) for each in by_hand(it)[0]] == [2, 1], "others continue")
    assert not child.is_ready()
    assert child.get(f"/apps/{it.second}/readyz")["status"] == "ok"
    assert child.get("/healthz")["status"] == "ok"
    assert await asyncio.to_thread(child.terminate) == 0


@pytest.mark.whole
async def test_an_app_that_is_refused_ends_the_process_with_its_code(two: Making, children: Family) -> None:
    """Its topics are missing: the other one, which could run, stops gracefully; standard error says which app it
    was."""
    it = two()
    servers = it.here.bootstrap_servers
    done = await asyncio.to_thread(
        lambda: command("topics", "ensure", it.files[0], "--partitions", "2", servers=servers)
    )
    assert done.returncode == 0, done.stderr
    await asyncio.to_thread(lambda: command("init", it.files[0], servers=servers))
    child = it.start(children)
    assert await asyncio.to_thread(child.process.wait, scaled(60)) == 2
    assert f"{it.second}: this app cannot start, so all apps stop: " in child.log
    assert re.search(rf"^error: .*folds-{it.second}", child.log, re.MULTILINE)
