"""`dev --reload`: the service starts again when its code changes, and keeps its state."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from snapreplay.api.cli.dev import Watch
from snapreplay.errors import UsageError
from tests.support.deadlines import scaled
from tests.support.processes import eventually

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
                *("feed", app_file, "payments", "--bootstrap-servers", servers),
                stdin='{"key": "ada", "value": 5}',
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
        eventually(lambda: log.read_text().count("partition 0 LIVE") == 2, "LIVE again")
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
                *(sys.executable, "-m", "snapreplay.api.cli", "dev", app_file.name, "--reload"),
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
    watch = Watch(str(app_file))
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
        Watch("nowhere.py")
