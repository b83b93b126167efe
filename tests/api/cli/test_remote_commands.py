"""restore-status, trigger-snapshot and health against a service on a real port."""

import json
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import msgspec
import pytest

from snapreplay.api.cli import operation_commands
from snapreplay.api.cli.client import Client, ServiceUnreachable
from snapreplay.service.control.operations import TriggerSnapshot
from snapreplay.service.control.protocol import Check
from snapreplay.service.core.phase import Phase
from tests.support.deadlines import scaled
from tests.support.fake_control import LIVE, LOADING
from tests.support.waiting import eventually


@pytest.fixture
def closed_url(closed_address) -> str:
    """A URL where nothing listens."""
    return f"http://{closed_address}"


@contextmanager
def ended_once_asked(control, state: str) -> Iterator[None]:
    """The operation that a command begins ends in `state` after the command was answered."""
    asked, perform = threading.Event(), control.perform

    def remember(command):
        operation = perform(command)
        asked.set()
        return operation

    control.perform = remember
    finisher = threading.Thread(
        target=lambda: asked.wait(timeout=scaled(20)) and control.finish(control.operations()[0], state)
    )
    finisher.start()
    yield
    finisher.join()


def test_restore_status_shows_every_partition(invoke, url):
    """The table has a row per partition, the troubles beneath it, the sum at the end."""
    result = invoke("restore-status", "--url", url)
    assert result.exit_code == 1
    for text in ("live", "loading", "1,024 / 4,096 bytes", "512/s", "5c1d (batch 41)", "equal"):
        assert text in result.stdout
    assert "partition 2: RecordError: handler failed (record payments-2-7)" in result.stdout
    assert "partition 2: hint: deploy a fixed handler" in result.stdout
    assert "snapshot 88bb was not usable" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("ledger: 1 live, 1 loading")


def test_restore_status_is_0_when_all_are_live(invoke, url, control):
    """What a script waits for, also with --output json."""
    control.statuses = {0: LIVE}
    assert invoke("restore-status", "--url", url).exit_code == 0
    control.statuses = {0: LIVE, 1: LOADING}
    assert invoke("restore-status", "--url", url, "-o", "json").exit_code == 5


def test_restore_status_without_partitions(invoke, url, control):
    """Before any assignment it says so."""
    control.statuses = {}
    result = invoke("restore-status", "--url", url)
    assert result.exit_code == 5
    assert result.stdout == "ledger: no partition is assigned to this process\n"


def test_restore_status_says_what_keeps_the_process_out(invoke, url, control):
    """Whether it has partitions or not, as the process itself says."""
    control.service_facts = msgspec.structs.replace(control.service_facts, trouble="group x is full (run fewer)")
    for statuses in ({}, {0: LIVE}):
        control.statuses = statuses
        assert "\ntrouble: group x is full (run fewer)\n" in "\n" + invoke("restore-status", "--url", url).stdout


@pytest.mark.parametrize("command", ["restore-status", "trigger-snapshot"])
@pytest.mark.parametrize("extra", [[], ["--output", "json"]])
def test_unreachable_is_3_and_names_the_url(invoke, closed_url, command, extra):
    """Nothing listens there: exit code 3, which URL, what to do."""
    result = invoke(command, "--url", closed_url, *extra)
    assert result.exit_code == 3
    assert closed_url in result.stderr
    assert "hint:" in result.stderr
    assert result.stdout == ""


def test_trigger_prints_the_operation(invoke, url, control):
    """Without --wait it returns at once, with the operation to follow."""
    result = invoke("trigger-snapshot", "--url", url, "--reason", "deploy")
    assert result.exit_code == 0
    (begun,) = control.operations()
    assert result.stdout.startswith(f"operation {begun.id}: snapshot running")
    assert begun.reason == "deploy"
    assert result.stderr.endswith("partition 1 (loading), 2 (failed), 3 (assigned), 4 (unknown), 5 (unknown)\n")
    assert "left out" not in invoke("trigger-snapshot", "--url", url, "--partition", "0").stderr


def test_an_operation_that_has_begun_is_printed_before_any_later_error(invoke, url, control, monkeypatch):
    """The service dies before it says which partitions were left out."""

    def gone(*_):
        raise ServiceUnreachable("gone")

    monkeypatch.setattr(Client, "restore_status", gone)
    result = invoke("trigger-snapshot", "--url", url)
    assert (result.exit_code, control.operations()[0].id in result.stdout) == (0, True)


@pytest.mark.parametrize(("state", "code"), [("succeeded", 0), ("failed", 1), ("cancelled", 1)])
@pytest.mark.parametrize(
    "asked",
    [
        ("trigger-snapshot", "--partition", "0"),
        ("adopt", "--partition", "0", "--manifest-offset", "42"),
        ("retry", "--partition", "2"),
    ],
)
def test_wait_follows_to_the_end(invoke, url, control, asked, state, code):
    """Whether it succeeded is the exit code."""
    with ended_once_asked(control, state):
        result = invoke(*asked, "--wait", "--url", url, "-o", "json")
    assert result.exit_code == code
    (operation,) = json.loads(result.stdout)["items"]
    assert operation["state"] == state


def test_a_cancel_succeeds_also_where_another_part_has_failed(invoke, url, control):
    """The operation has failed then, and what was asked for is done."""
    control.statuses = {0: LIVE, 3: msgspec.structs.replace(LIVE, partition=3)}
    begun = control.perform(TriggerSnapshot((0, 3), ""))
    control.finish(msgspec.structs.replace(begun, parts=begun.parts[:1]), "failed")
    result = invoke("cancel", begun.id, "--url", url, "-o", "json")
    (operation,) = json.loads(result.stdout)["items"]
    assert (result.exit_code, operation["state"]) == (0, "failed")


@pytest.mark.parametrize("asked", [("trigger-snapshot",), ("retry", "--partition", "2")])
def test_of_a_wait_that_is_interrupted_the_operation_is_named(invoke, url, control, monkeypatch, asked):
    """Ctrl-C ends the wait, and not the operation: it can be found, and cancelled."""
    pressed = SimpleNamespace(sleep=lambda _: signal.raise_signal(signal.SIGINT))
    monkeypatch.setattr(operation_commands, "time", pressed)  # between two questions
    result = invoke(*asked, "--wait", "--url", url)
    (operation,) = control.operations()
    assert (result.exit_code, operation.state) == (130, "running")
    assert f"the wait ended early: {operation.id}" in result.stderr
    assert f"`snapreplay operations --url {url}`" in result.stderr


@pytest.mark.parametrize(
    ("command", "partition", "code", "text"),
    [
        ("trigger-snapshot", "6", 2, "partition 6 does not exist: there are 6 (0 to 5)"),
        ("trigger-snapshot", "5", 1, "another process owns it"),
        ("trigger-snapshot", "5", 1, "hint: `snapreplay restore-status` shows which process has it"),
        ("trigger-snapshot", "1", 1, "it is loading"),
        ("trigger-snapshot", "-1", 2, "--partition"),
        ("trigger-snapshot", "false", 2, "--partition"),
        ("adopt", "0", 2, "--manifest-offset"),
        ("adopt", "0 --partition 1 --manifest-offset 42", 2, "a manifest is of one partition"),
        ("retry", "6", 2, "partition 6 does not exist: there are 6 (0 to 5)"),
        ("retry", "5", 1, "another process owns it"),
        ("retry", "0", 1, "hint: `snapreplay restore-status` shows its phase"),
        ("retry", "0", 1, "partition 0 is live: there is nothing to retry"),
    ],
)
def test_what_the_service_or_the_parser_refuses(invoke, url, command, partition, code, text):
    """Its sentence, and 2 for a wrong call, 1 for no."""
    result = invoke(command, "--partition", *partition.split(), "--url", url)
    assert result.exit_code == code
    assert text in result.stderr


def test_retry_without_partitions_is_for_all_that_failed(invoke, url, control):
    """One operation for each, with its id; the table has a row per partition."""
    control.statuses[1] = msgspec.structs.replace(control.statuses[1], phase=Phase.FAILED)
    result = invoke("retry", "--url", url)
    assert result.exit_code == 0
    parts = [part.partition for operation in control.operations() for part in operation.parts]
    assert sorted(parts) == [1, 2]
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["1", "pending", "-"] in rows
    assert ["2", "pending", "-"] in rows


def test_retry_continues_after_one_that_is_refused(invoke, url, control):
    """What has begun is printed, and waited for; the refusal makes it 1."""
    with ended_once_asked(control, "succeeded"):
        asked = ("--partition", "0", "--partition", "2", "--partition", "5")
        result = invoke("retry", *asked, "--wait", "--url", url, "-o", "json")
    assert result.exit_code == 1
    (operation,) = json.loads(result.stdout)["items"]
    assert operation["state"] == "succeeded"
    assert "partition 0 is live: there is nothing to retry" in result.stderr
    assert "another process owns it" in result.stderr


def test_health_follows_the_probes(invoke, url, control):
    """0 alive, 1 not alive or, with --ready, not ready; what fails is said. A status is shown for milliseconds."""
    assert invoke("health", "--url", url).exit_code == 0
    not_ready = invoke("health", "--ready", "--url", url)
    assert not_ready.exit_code == 1
    assert "partition 1: loading" in not_ready.stderr
    control.statuses = {0: LIVE}
    eventually(lambda: invoke("health", "--ready", "--url", url).exit_code == 0, "ready")
    control.checks = [Check("loop", ok=False)]
    eventually(lambda: invoke("health", "--url", url).exit_code == 1, "not alive")


def test_health_without_an_answer_is_1(invoke, closed_url, monkeypatch):
    """Nothing listens there, or a setting is wrong: to Docker any other code is reserved. The message says why."""
    monkeypatch.setenv("SNAPREPLAY_HTTP__PORT", "x")
    for options, said in (((), "http.port='x'"), (("--url", closed_url), closed_url)):
        result = invoke("health", *options)
        assert result.exit_code == 1
        assert said in result.stderr


@pytest.mark.parametrize("wrong", [["--bogus"], ["--http-port", "x"], ["extra"]])
def test_health_that_is_not_understood_is_1(invoke, wrong):
    """Also a wrong option ends in a code that Docker understands; --help is no failure."""
    result = invoke("health", *wrong)
    assert result.exit_code == 1
    assert wrong[0] in result.stderr
    assert "hint: see `snapreplay health --help`" in result.stderr
    assert invoke("health", "--help").exit_code == 0


@pytest.mark.parametrize(
    "command", [["health"], ["restore-status"], ["restore-status", "-o", "json"], ["trigger-snapshot"]]
)
def test_the_port_of_run_and_dev_is_taken_as_typed(invoke, url, command):
    """Who started the service with --http-port finds it by the same option: one partition has failed."""
    result = invoke(*command, "--http-port", url.rpartition(":")[2])
    assert result.exit_code == (1 if command[0] == "restore-status" else 0), result.output


def test_an_operation_of_no_partition_says_what_became_of_it(invoke, url):
    """No table without rows: it would not say whether anything was done."""
    result = invoke("undrain", "--url", url)
    assert (result.exit_code, "partition" in result.stdout) == (0, False)
    assert re.fullmatch(r"operation \S+: undrain succeeded\n", result.stdout)
