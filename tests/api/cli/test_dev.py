"""dev: the whole thing on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.kafka


COMMAND = [sys.executable, "-m", "snapreplay.api.cli", "dev"]


def dev(ledger: Path, invoke, *options: str, locale: str) -> str:
    """Start `dev`, wait until every partition is live, end it by Ctrl-C; its standard error."""
    command = [*COMMAND, str(ledger), "--http-port", "0"]
    lines = []
    with subprocess.Popen(
        [*command, *options],
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "LC_ALL": locale},
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
            process.send_signal(signal.SIGINT)
            _, rest = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == 0, "".join(lines) + rest
    return "".join(lines) + rest


def test_dev_makes_all_that_is_missing_and_keeps_it(ledger, invoke, tmp_path):
    """Topics, genesis, service and HTTP in one command; with --data-dir also the next time, whatever
    its name is, and in any locale."""
    data = tmp_path / "Größe 東京 dir"
    first = dev(ledger, invoke, "--data-dir", str(data), "--partitions", "2", locale="C")
    assert f"in {data}\n" in first
    assert "created payments (2 partitions)" in first
    assert "created ledger-increments (2 partitions)" in first
    assert "feed it:  snapreplay feed cli_ledger:app payments --bootstrap-servers 127." in first
    assert "ERROR" not in first, "a new broker that makes its coordinators is no error"
    again = dev(ledger, invoke, "--data-dir", str(data), locale="C.UTF-8")
    assert "ok payments" in again
    assert "created" not in again
