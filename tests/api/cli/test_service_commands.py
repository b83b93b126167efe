"""run, init and topics ensure: refused before Kafka where possible, and whole against a real broker."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from snapreplay import UsageError, run
from snapreplay.api.cli.author_commands import INSTEAD
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import NewTopic
from tests.support import reference
from tests.support.deadlines import scaled
from tests.support.waiting import eventually

COMMANDS = [["run"], ["dev"], ["init"], ["topics", "ensure"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_bad_app_is_refused(invoke, tmp_path, command):
    """What cannot be an app: exit code 2, what it is, before any call to Kafka. What that may be: test_load.py."""
    (tmp_path / "bad_syntax.py").write_text("def f(:")
    result = invoke(*command, "bad_syntax.py")
    assert result.exit_code == 2, result.output
    assert "SyntaxError" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_two_apps_with_the_same_id_are_refused(invoke, ledger, command):
    """By name, before any call to Kafka."""
    (ledger.parent / "twin.py").write_text(ledger.read_text())
    result = invoke(*command, ledger, "twin.py")
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: two of the apps have the id 'ledger': each would take the partitions of")


def test_no_app_is_refused():
    with pytest.raises(UsageError, match="no app to run"):
        run([])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_wrong_setting_is_refused(invoke, ledger, command):
    """A setting that does not exist: exit code 2 and its name, before any call to Kafka."""
    result = invoke(*command, ledger, "--set", "snapshot.evry_seconds=1")
    assert result.exit_code == 2
    assert "did you mean snapshot.every_seconds?" in result.stderr


def test_nothing_but_the_error_is_printed(ledger, closed_address):
    """No line of the client before it, and no class of Python in it."""
    module, where = "snapreplay.api.cli", ["--bootstrap-servers", closed_address]
    ended = subprocess.run(
        [sys.executable, "-m", module, "topics", "ensure", str(ledger), *where],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 3
    error, hint = ended.stderr.splitlines()
    assert error == (
        "error: no usable answer from Kafka while describing topics:"
        f" no broker answers at {closed_address} (Connection refused)"
    )
    assert hint.startswith(" hint: check that the cluster is up")


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """End it with the block, if the test did not."""
    with process:
        try:
            yield process
        finally:
            process.kill()


# ------------------------------------------------------------------ against a real broker


@pytest.fixture
def app_id(unique, ledger: Path) -> str:
    """The ledger app under names of its own."""
    name: str = unique("cli")
    ledger.write_text(ledger.read_text().replace("'ledger'", f"'{name}'").replace("'payments'", f"'{name}-in'"))
    return name


@pytest.fixture
def on_broker(invoke, ledger, broker, app_id):
    """`on_broker("init")` runs a command on the app against the session's broker."""

    def run(*command: str, then: tuple[str, ...] = ()):
        return invoke(*command, ledger, "--bootstrap-servers", broker.bootstrap_servers, *then)

    return run


@pytest.fixture
def input_topic(broker, app_id: str) -> None:
    settings = Settings(kafka={"bootstrap.servers": broker.bootstrap_servers})
    topic = NewTopic(f"{app_id}-in", partition_count=2)
    asyncio.run(KafkaCluster(settings).create_topics([topic]))


def until_live(invoke: Any, url: str, *options: str) -> Any:
    """Ask until all are live. On a busy machine the first answer may take longer than a command waits for it."""
    shown: list[Any] = []

    def ended() -> bool:
        shown[:] = [invoke("restore-status", "--url", url, *options)]
        return bool(shown[0].exit_code == 0)

    eventually(ended, "all live")
    return shown[0]


@pytest.fixture
def process(ledger: Path, broker, request) -> Iterator[subprocess.Popen[str]]:
    """`snapreplay run` in a process of its own, with the options of the test; ended if the test did not."""
    command = [sys.executable, "-m", "snapreplay.api.cli", "run", str(ledger), "--http-port", "0"]
    command += getattr(request, "param", [])
    command += ["--bootstrap-servers", broker.bootstrap_servers, "--set", "instance_id=cli"]
    with ended(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ)) as started:
        yield started


@pytest.mark.usefixtures("input_topic")
def test_topics_and_genesis_are_made_once(on_broker, app_id):
    """topics ensure and init say what they did, and can be repeated."""
    first = on_broker("topics", "ensure")
    assert first.exit_code == 0, first.output
    assert f"created {app_id}-increments (2 partitions)" in first.stdout
    assert f"ok {app_id}-increments" in on_broker("topics", "ensure").stdout
    made = on_broker("init", then=("--from", "latest", "-o", "json"))
    assert made.exit_code == 0, made.output
    assert len(json.loads(made.stdout)["done"]) == 2
    assert on_broker("init").stdout.count("already initialised") == 2


@pytest.mark.usefixtures("input_topic")
def test_run_serves_until_sigterm(on_broker, invoke, process):
    """The way round of a `dev` without Java: run prints its URL, becomes live, and ends with 0 at SIGTERM."""
    *before, last = re.findall(r"`snapreplay ([a-z ]+) APP`", INSTEAD)
    assert (len(before), last) == (2, "run")
    for command in before:
        assert on_broker(*command.split()).exit_code == 0
    url = next(line.split()[2] for line in process.stderr if line.startswith("HTTP API: "))
    watched = until_live(invoke, url, "-o", "json")
    assert json.loads(watched.stdout.splitlines()[-1])["summary"]["all_live"] is True
    process.send_signal(signal.SIGTERM)
    said = process.stderr.read()
    assert process.wait(timeout=scaled(30)) == 0
    assert "SIGTERM: stops gracefully, within 25.0 s" in said
    assert re.search(r"2 partitions ended after \d+\.\d\d s", said)
    assert re.search(r": stopped$", said, re.MULTILINE)


@pytest.mark.whole  # without a process: tests/service/test_service.py
@pytest.mark.usefixtures("input_topic")
def test_run_waits_for_its_beginning_and_continues(on_broker, invoke, process):
    """Healthy, not ready, with the one command on every screen; after `topics ensure` and `init` it is live."""
    said = {"HTTP": "", "WAITING": ""}  # either may come first
    while not all(said.values()):
        line = process.stderr.readline()
        said |= {word: line for word in said if word in line}
    url = said["HTTP"].split()[2]
    assert "`snapreplay topics ensure " in said["WAITING"]
    assert invoke("health", "--url", url).exit_code == 0
    assert invoke("health", "--ready", "--url", url).exit_code == 1
    status = invoke("restore-status", "--url", url)
    assert status.exit_code == 5, status.output
    assert "waiting: app " in status.stdout
    for command in (["topics", "ensure"], ["init"]):
        assert on_broker(*command).exit_code == 0
    until_live(invoke, url)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=scaled(30)) == 0


FOR_OTHERS = {"pandas", "pyarrow", "pyspark", "rich", "typer"}


@pytest.mark.usefixtures("input_topic")
@pytest.mark.parametrize("process", [["--init", "--from", "latest"]], indirect=True)
def test_run_begins_a_new_app_in_one_command_and_imports_only_what_it_needs(
    on_broker, invoke, broker, app_id, ledger, process
):
    """Topics and genesis, told in the log; a second `init` finds it. Neither Spark nor what only other commands need is
    imported."""
    telling = "    import sys\n    print('IMPORTED', *sys.modules, file=sys.stderr, flush=True)\n"
    ledger.write_text(ledger.read_text() + telling)
    url = next(line.split()[2] for line in process.stderr if line.startswith("HTTP API: "))
    until_live(invoke, url)
    assert on_broker("init").stdout.count("already initialised") == 2
    reference.send(broker.bootstrap_servers, f"{app_id}-in", 2, [("k", 1)])
    imported = next(line.split()[1:] for line in process.stderr if line.startswith("IMPORTED"))
    assert not FOR_OTHERS & {name.partition(".")[0] for name in imported}
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=scaled(30)) == 0


@pytest.mark.usefixtures("input_topic")
def test_run_that_must_not_wait_ends_with_4(on_broker):
    """For scripts: an operator is needed; nothing was created."""
    refused = on_broker("run", then=("--no-wait", "--http-port", "0"))
    assert refused.exit_code == 4, refused.output
    assert "has not begun" in refused.stderr
    assert "has not begun" in on_broker("run", then=("--no-wait", "--http-port", "0")).stderr
