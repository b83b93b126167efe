"""doctor, accept and patch as they are typed: what they print and ask. What doctor looks at: tests/service/doctor; the
rest of accept: tests/attacks, B3."""

import asyncio
import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from snapreplay.app.upgrade import UpgradeFailed
from snapreplay.service.decisions.accept import Acceptance
from snapreplay.service.decisions.upgrade_trial import UpgradeTrial
from snapreplay.service.doctor.checks import DoctorReport
from snapreplay.service.doctor.facts import Diagnosis
from snapreplay.service.publish.state import Begun
from tests.support.deadlines import scaled, within
from tests.support.entries import increment

LOOKED_AT = {"checks": 19, "brokers": 3}
FINE = DoctorReport("ledger", LOOKED_AT, [], 0.42)
FINDING = Diagnosis("retention", "ledger-snapshots", "[kept] 7 days", "alter it")
SICK = DoctorReport("ledger", LOOKED_AT, [FINDING], 1)


@pytest.fixture
def reporting(monkeypatch):
    """`reporting(report)`: what the cluster looks like; returns what the command asked with."""

    def make(report):
        asked = []

        async def examine(app, settings):
            asked.append((app, settings))
            return report

        monkeypatch.setattr("snapreplay.service.doctor.collect.examine", examine)
        return asked

    return make


def test_fine_is_0_and_says_what_was_looked_at(invoke, ledger, reporting):
    """The app is loaded, the settings are those of the options."""
    asked = reporting(FINE)
    result = invoke("doctor", ledger, "--bootstrap-servers", "k:1")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "ledger: no findings (0.4 s)"
    assert "checks" in result.stdout
    ((app, settings),) = asked
    assert (app.app_id, settings.bootstrap_servers) == ("ledger", ["k:1"])


def test_findings_are_1_each_with_its_remedy(invoke, ledger, reporting):
    """What, where, the value, the remedy, as they are: brackets are no markup. For a script the whole report."""
    reporting(SICK)
    result = invoke("doctor", ledger)
    assert result.exit_code == 1
    shown = result.stdout.splitlines()
    at = shown.index("retention: ledger-snapshots")
    assert shown[at + 1 : at + 3] == ["  [kept] 7 days", "  remedy: alter it"]
    assert "ledger: 1 finding (" in shown[-1]

    document = json.loads(invoke("doctor", ledger, "--output", "json").stdout)
    assert document["findings"][0]["remedy"] == "alter it"
    assert document["looked_at"] == LOOKED_AT


def test_without_an_app_the_cluster_alone(invoke, reporting):
    """No app is loaded."""
    asked = reporting(DoctorReport(None, LOOKED_AT, [], 0.1))
    result = invoke("doctor")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].startswith("cluster: no findings")
    assert asked[0][0] is None


def test_what_could_not_run_is_2(invoke, closed_address):
    """No broker, a wrong app: never 1, which means findings. A defect: tests/api/cli/test_exits.py."""
    unreachable = invoke("doctor", "--bootstrap-servers", closed_address)
    assert unreachable.exit_code == 2
    assert "error:" in unreachable.stderr
    assert invoke("doctor", "no_such_module:app").exit_code == 2


# ---- accept

GIVEN = ["--partition", "0", "--finding", "input-gap-0a1b2c3d"]


@pytest.mark.parametrize("missing", ["--partition", "--finding", "--reason"])
def test_nothing_is_assumed(invoke, ledger, missing):
    """Partition, finding and reason have no defaults: exit code 2 and the option's name."""
    given = {"--partition": "0", "--finding": "x", "--reason": "y"}
    del given[missing]
    result = invoke("accept", ledger, *(word for pair in given.items() for word in pair))
    assert result.exit_code == 2
    assert missing in result.stderr


def test_an_empty_reason_is_none(invoke, ledger):
    """Exit code 2, before any call to Kafka."""
    result = invoke("accept", ledger, *GIVEN, "--reason", " ")
    assert result.exit_code == 2
    assert "no reason was given" in result.stderr


@pytest.fixture
def trying(monkeypatch):
    """`trying(*trials)`: what an upgrade of each partition comes to."""

    def make(*trials):
        async def try_upgrade(app, settings, cluster, on_news):
            return list(trials)

        monkeypatch.setattr("snapreplay.service.decisions.upgrade_trial.try_upgrade", try_upgrade)

    return make


FAILING = UpgradeTrial(1, 7, 1, 20, None, UpgradeFailed("state['bob'] cannot be upgraded", hint="correct it", key="6f"))


def test_an_upgrade_that_would_fail_is_1_and_names_the_partition(invoke, ledger, trying):
    """For a script with all its facts."""
    trying(UpgradeTrial(0, 7, 1, 20, 21), FAILING)
    result = invoke("upgrade", ledger, "--dry-run")
    assert result.exit_code == 1
    assert "partition 0: 20 entries of schema_version 1 would become 21 of 1" in result.stdout
    assert "partition 1: UpgradeFailed: state['bob'] cannot be upgraded" in result.stdout
    assert "1 of 2 partitions would fail" in result.stdout
    told = json.loads(invoke("upgrade", ledger, "--dry-run", "-o", "json").stdout)
    assert [each["upgraded"] for each in told] == [21, None]
    assert told[1]["error"] == {
        "kind": "UpgradeFailed",
        "message": "state['bob'] cannot be upgraded",
        "hint": "correct it",
        "key": "6f",
    }


@pytest.fixture
def accepting(invoke, ledger, monkeypatch):
    """`accepting(*options)`: the command as typed, where the finding is as it was named, and the log takes the
    decision."""
    here: Any = SimpleNamespace(partition=0)
    nothing: Any = None  # printing needs no state
    decision = {"finding": GIVEN[-1], "problem": "InputTrimmed: gone", "reason": "known outage", "by": "ada@host-a"}
    plan = ("payments: resumes at offset 130", "a full snapshot is written")
    acceptance = Acceptance(plan, decision, here, nothing, nothing, end_offset=0)

    async def propose(*_):
        return acceptance

    async def carry_out(_):
        return Begun(increment(9), 27, "5eed")

    monkeypatch.setattr("snapreplay.service.decisions.accept.propose", propose)
    monkeypatch.setattr("snapreplay.service.decisions.accept.carry_out", carry_out)
    return lambda *options: invoke("accept", ledger, *GIVEN, "--reason", "known outage", *options).stdout.splitlines()


PLAN = [
    "partition 0: input-gap-0a1b2c3d",
    "  InputTrimmed: gone",
    "  - payments: resumes at offset 130",
    "  - a full snapshot is written",
    "  by ada@host-a: known outage",
]


def test_the_plan_is_printed_then_where_the_decision_stands(accepting):
    """What is the matter, what will be done, by whom and why; and what is still to be done: the process that failed
    does not look again by itself."""
    *plan, said = accepting()
    assert plan == PLAN
    assert "increment 9 at offset 27, snapshot 5eed" in said
    assert said.endswith("Now run `snapreplay retry --partition 0`")


def test_a_dry_run_has_no_offset(accepting):
    """It ends with the plan; for a script it is one document, as is what was done."""
    assert accepting("--dry-run") == [*PLAN, "dry run: nothing was written"]
    (done,), (dry,) = accepting("-o", "json"), accepting("-o", "json", "--dry-run")
    document = json.loads(done)
    assert (document["finding"], document["problem"]) == (GIVEN[-1], "InputTrimmed: gone")
    assert (document["dry_run"], document["batch"], document["offset"]) == (False, 9, 27)
    assert (json.loads(dry)["dry_run"], json.loads(dry)["offset"]) == (True, None)


# ---- patch


def file_of(folder, *lines):
    path = folder / "patch.jsonl"
    path.write_text("\n".join(json.dumps(each) for each in lines))
    return path


def test_without_a_terminal_it_must_be_told_not_to_ask(invoke, ledger, tmp_path):
    """Exit code 2, before any call to Kafka; so a script cannot hang."""
    result = invoke("patch", ledger, file_of(tmp_path))
    assert result.exit_code == 2
    assert "check the result of `--dry-run`, then run with `--yes`" in result.stderr


def test_the_lines_that_take_a_patch_back_are_not_written_over(invoke, ledger, tmp_path):
    """They may be the only ones. Exit code 2, before any call to Kafka."""
    undo = tmp_path / "undo.jsonl"
    undo.write_text("{}")
    result = invoke("patch", ledger, file_of(tmp_path), "--yes", "--undo", undo)
    assert (result.exit_code, undo.read_text()) == (2, "{}")
    assert f"{undo} exists" in result.stderr


def test_a_file_that_cannot_be_read_is_named(invoke, ledger, tmp_path):
    """Exit code 2, with the reason of the system."""
    result = invoke("patch", ledger, tmp_path / "none.jsonl", "--yes")
    assert result.exit_code == 2
    assert "none.jsonl cannot be read: No such file or directory" in result.stderr


def answered(words, answer):
    """Return what a process in a terminal of its own prints until it ends, and its exit code."""
    mine, its = os.openpty()
    try:
        command = [sys.executable, "-m", "snapreplay.api.cli", *map(str, words)]
        with subprocess.Popen(command, stdin=its, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            os.write(mine, answer)
            said, _ = process.communicate(timeout=scaled(60))
    finally:
        os.close(mine)
        os.close(its)
    return said.decode().rstrip(), process.returncode


def partition_of(state, key):
    return next(number for number, entries in enumerate(state) if key in entries)


@pytest.mark.whole
async def test_a_live_app_is_corrected_between_two_records(desk, tmp_path):
    """Looked at, refused by name, asked, done, done once, taken back; killed in between, and exact at the end."""
    line = {"key": "ada", "expected": 5, "value": 7, "reason": "ticket 17"}
    file, undo = file_of(tmp_path, line), tmp_path / "undo.jsonl"
    async with desk.harness() as harness:
        feed = '{{"key": "{}", "value": {{"amount": {}}}}}'.format
        await desk.type("feed", f"{desk.name}-in", stdin="\n".join((feed("ada", 5), feed("bob", 1))))
        await harness.caught_up()
        wrong = file_of(tmp_path, line | {"expected": 6})
        refused = await desk.type("patch", wrong, "--yes", code=2)
        assert "line 1: state['ada'] is 5, but was expected to be 6" in refused.stderr
        file_of(tmp_path, line)
        shown = await desk.type("patch", file, "--dry-run")
        assert "state['ada']" in shown.stdout
        assert "ticket 17" in shown.stdout
        assert "dry run, 1 entry would be corrected" in shown.stdout
        said, code = await asyncio.to_thread(answered, desk.words("patch", file), b"n\n")
        assert "Correct these entries? [y/N]" in said
        assert said.endswith("nothing was changed")
        assert code == 2
        done = await desk.type("patch", file, "--yes", "-o", "json", "--undo", undo)
        (told,) = map(json.loads, done.stdout.splitlines())
        assert told["decision"]["reason"] == "ticket 17"
        await desk.type("feed", f"{desk.name}-in", stdin=feed("ada", 1))
        await harness.caught_up()
        assert (await desk.tail(f"{desk.name}-out"))[-1]["value"] == 8
        await harness.kill()
        await harness.start()
        again = await desk.type("patch", file, "--yes", code=2)
        assert "state['ada'] is 8, but was expected to be 5" in again.stderr
        assert json.loads(undo.read_text()) == {
            "store": "default",
            "key": "ada",
            "expected": 7,
            "value": 5,
            "partition": told["partition"],
            "reason": "takes back: ticket 17",
        }
        async with within(60):
            await desk.type("patch", file_of(tmp_path, line | {"expected": 8, "value": 6}), "--yes")
        await desk.type("feed", f"{desk.name}-in", stdin=feed("ada", 1))
        await harness.caught_up()
        state = [dict(await harness.state(number)) for number in range(2)]
        assert {key: value for part in state for key, value in part.items()} == {"ada": 7, "bob": 1}
        assert partition_of(state, "ada") == told["partition"]
    sys.modules.pop("fed_ledger", None)
