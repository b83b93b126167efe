"""dev: the whole thing on this machine; with --reload the service starts again when its code changes, and keeps its
state."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from snapreplay.api.cli.author_commands import CodeWatch
from snapreplay.errors import UsageError
from tests.support.deadlines import scaled
from tests.support.waiting import eventually

COMMAND = [sys.executable, "-m", "snapreplay.api.cli", "dev"]


def dev(ledger: Path, invoke, *options: str, locale: str, live: Callable[[str], None] | None = None) -> str:
    """Start `dev`, wait until every partition is live, call `live` with what it has said, end it by Ctrl-C. Returns its
    standard error."""
    command = [*COMMAND, str(ledger), "--http-port", "0"]
    lines = []
    with subprocess.Popen(
        [*command, *options], stderr=subprocess.PIPE, encoding="utf-8", env={**os.environ, "LC_ALL": locale}
    ) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                lines.append(line)
                if line.startswith("HTTP API: "):
                    break
            url = lines[-1].split()[2]
            watched = invoke("restore-status", "--watch", "--url", url)
            assert watched.exit_code == 0, watched.output
            if live is not None:
                live("".join(lines))
            process.send_signal(signal.SIGINT)
            _, rest = process.communicate(timeout=scaled(60))
        finally:
            process.kill()
        assert process.returncode == 0, "".join(lines) + rest
    return "".join(lines) + rest


@pytest.mark.whole
@pytest.mark.kafka
def test_what_dev_prints_feeds_the_app_and_shows_what_it_sends(ledger, invoke):
    """Both lines as they are printed; the second one shows what is sent later, too."""
    app = ledger.read_text().replace("payments = ", "balances = Topic('balances')\npayments = ")
    app = app.replace("inputs=[payments],", "inputs=[payments], outputs=[balances],")
    ledger.write_text(app + "    out.send(balances, key=record.key, value=state[record.key])\n")

    def follow(said: str) -> None:
        typed = re.findall(r"^(?:feed|watch) it: +snapreplay (.+)$", said, re.MULTILINE)
        feed, watch = map(shlex.split, typed)
        with subprocess.Popen(
            [*COMMAND[:-1], *watch], stdout=subprocess.PIPE, encoding="utf-8", cwd=ledger.parent
        ) as watching:
            assert watching.stdout is not None
            for total in ("5", "10"):
                fed = invoke(*feed, stdin='{"key": "ada", "value": 5}\n')
                assert fed.exit_code == 0, fed.output
                assert watching.stdout.readline().split()[-1] == total
            watching.send_signal(signal.SIGINT)

    dev(ledger, invoke, locale="C.UTF-8", live=follow)


@pytest.mark.whole
@pytest.mark.kafka
def test_dev_makes_all_that_is_missing_and_keeps_it(ledger, invoke, tmp_path):
    """Topics, genesis, service and HTTP in one command; with --data-dir also the next time, whatever
    its name is, and in any locale."""
    data = tmp_path / "Größe 東京 dir"
    first = dev(ledger, invoke, "--data-dir", str(data), "--partitions", "2", locale="C")
    assert f"in {data}\n" in first
    assert "created payments (2 partitions)" in first
    assert "created ledger-increments (2 partitions)" in first
    assert "ERROR" not in first, "a new broker that makes its coordinators is no error"
    again = dev(ledger, invoke, "--data-dir", str(data), locale="C.UTF-8")
    assert "ok payments" in again
    assert "created" not in again


# ---- --reload

HANDLER = """
from snapreplay import App, MapState, Topic
from fee import FEE

payments, balances = Topic("payments"), Topic("balances")
app = App(
    "reloaded",
    inputs=[payments],
    outputs=[balances],
    state=lambda: MapState(str, int, default=int),
)


@app.handler(payments)
def on_payment(record, state, out):
    state[record.key] += record.value - FEE
    out.send(balances, key=record.key, value=state[record.key])
"""


@pytest.fixture
def app_file(tmp_path):
    (tmp_path / "fee.py").write_text("FEE = 0\n")
    path = tmp_path / "reloaded.py"
    path.write_text(HANDLER)
    return path


@pytest.mark.whole
@pytest.mark.kafka
def test_a_change_is_taken_and_the_state_is_kept(app_file, tmp_path, invoke):
    """A syntax error in an imported module is shown and waits for the next change; the fee of the new code applies to
    the old balance. The port is that of the last time; Ctrl-C ends all with 0."""
    log, data = tmp_path / "log", tmp_path / "data"
    process = start(app_file, log, data)
    try:
        servers = wait_for(process, log, r"Kafka: +(\S+) in")
        wait_for(process, log, "partition 0 LIVE")

        def feed():
            done = invoke(
                *("feed", app_file, "payments", "--bootstrap-servers", servers), stdin='{"key": "ada", "value": 5}'
            )
            assert done.exit_code == 0, done.output

        def balances():
            words = ("tail", app_file, "balances", "--bootstrap-servers", servers, "-o", "json")
            return [json.loads(line)["value"] for line in invoke(*words).stdout.splitlines()]

        feed()
        eventually(lambda: balances() == [5], "the first balance")
        (tmp_path / "fee.py").write_text("FEE = (\n")
        wait_for(process, log, "code changed: fee.py")
        wait_for(process, log, r"SyntaxError.*\(fee.py, line 1\)")
        wait_for(process, log, "ended with exit code 2; the next change starts it")
        (tmp_path / "fee.py").write_text("FEE = 1\n")
        eventually(lambda: log.read_text().count("partition 0 LIVE") >= 2, "LIVE again")
        feed()
        eventually(lambda: balances() == [5, 9], "the new code on the old state")
        process.send_signal(signal.SIGINT)
        assert process.wait(scaled(60)) == 0
    finally:
        process.kill()
    assert "Traceback" not in log.read_text()
    assert "Fatal" not in log.read_text()
    assert (data / "snapreplay-dev-port").read_text() == servers.rpartition(":")[2]


def start(app_file, log, data):
    with log.open("wb") as stderr:
        return subprocess.Popen(
            [
                *(*COMMAND, app_file.name, "--reload"),
                *("--partitions", "1", "--http-port", "0", "--data-dir", str(data)),
            ],
            cwd=app_file.parent,
            stderr=stderr,
            env=os.environ,
        )


def wait_for(process, log, pattern):
    """Its first group, or all of it."""

    def there():
        assert process.poll() is None, log.read_text()
        return re.search(pattern, log.read_text())

    eventually(there, pattern, seconds=60)
    found = there()
    return found[found.re.groups]


def test_what_is_watched_are_the_modules_of_the_app(app_file, tmp_path, monkeypatch):
    """Its own file and what it imports, not its neighbours; a file that cannot be compiled keeps the others watched."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "neighbour.py").write_text("")
    watch = CodeWatch(str(app_file))
    before = watch.look()
    assert {path.name for path in before} == {"reloaded.py", "fee.py"}
    app_file.write_text("def f(")
    after = watch.look()
    assert after.keys() == before.keys()
    assert [path.name for path in after if after[path] != before[path]] == ["reloaded.py"]


def test_a_file_that_does_not_exist_is_refused(invoke):
    """No change of it would start anything."""
    refused = invoke("dev", "nowhere.py", "--reload")
    assert refused.exit_code == 2
    assert "nowhere.py does not exist" in refused.stderr
    with pytest.raises(UsageError):
        CodeWatch("nowhere.py")


@pytest.mark.parametrize("options", [[], ["--reload"]])
def test_apps_that_cannot_share_a_process_are_refused_before_the_broker_starts(invoke, tmp_path, monkeypatch, options):
    monkeypatch.setattr("snapreplay.devbroker.broker.LocalBroker", None)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "app.py").touch()
    refused = invoke("dev", tmp_path / "one" / "app.py", tmp_path / "two" / "app.py", *options)
    assert refused.exit_code == 2
    assert "both have a module 'app'" in refused.stderr
