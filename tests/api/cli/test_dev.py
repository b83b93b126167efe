"""dev: the whole thing on this machine."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

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
            eventually(lambda: invoke("restore-status", "--url", url).exit_code == 0, "all live")
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
    """Topics, genesis, service and HTTP in one command; with --data-dir also the next time, with any
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


def test_what_the_broker_cannot_use_is_refused_with_the_option_that_names_another(invoke, ledger, monkeypatch):
    monkeypatch.setattr("snapreplay.devbroker.free_ports.PATIENCE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = invoke("dev", ledger, "--kafka-port", taken.getsockname()[1])
    assert refused.exit_code == 2
    assert "or 0 for a free one, with `--kafka-port N`" in refused.stderr
    refused = invoke("dev", ledger, "--data-dir", "one,two")
    assert refused.exit_code == 3
    assert "name a directory that this user may write to, with `--data-dir DIR`" in refused.stderr


def test_apps_that_cannot_share_a_process_are_refused_before_the_broker_starts(invoke, tmp_path, monkeypatch):
    monkeypatch.setattr("snapreplay.devbroker.broker.LocalBroker", None)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "app.py").touch()
    refused = invoke("dev", tmp_path / "one" / "app.py", tmp_path / "two" / "app.py")
    assert refused.exit_code == 2
    assert "both have a module 'app'" in refused.stderr
