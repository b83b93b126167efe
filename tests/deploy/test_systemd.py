"""deploy/snapreplay@.service: what can be known of it without systemd running."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from snapreplay.api.cli.output import ExitCode
from snapreplay.api.cli.running import plain_run
from snapreplay.service.config.settings import load_settings
from tests.deploy.dockerfile import ROOT

TEMPLATE = (ROOT / "deploy/snapreplay@.service").read_text(encoding="utf-8")
UNIT = TEMPLATE.replace("%j", "ledger").replace("%i", "2").replace("%H", "host-a")


def given(name: str) -> str:
    """The value of a directive that is there once."""
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return str(value)


def test_systemd_knows_every_directive(tmp_path: Path) -> None:
    """It only warns of those that it does not know. The program is not installed here: another one stands for it, whose
    name shows what systemd makes of the specifiers."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing: `apt-get install systemd`")
    unit = tmp_path / "snapreplay-ledger@2.service"
    unit.write_text(TEMPLATE.replace("/opt/snapreplay/bin/snapreplay", f"{tmp_path}/%j-%i"))
    (tmp_path / "ledger-2").symlink_to("/bin/true")
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_it_calls_what_exists() -> None:
    """The command with its options, and the variables; a stop is given its time."""
    program, *words = shlex.split(given("ExecStart"))
    assert program == "/opt/snapreplay/bin/snapreplay"
    called = plain_run(words)
    assert called is not None
    assert (called["apps"], str(called["config"])) == (["ledger.py"], "ledger.toml")
    variables = dict(each.split("=") for each in given("Environment").split())
    settings = load_settings(environment=variables)
    assert (settings.instance_id, settings.http.port) == ("host-a-ledger-2", 8082)
    assert 1000 * int(given("TimeoutStopSec")) > load_settings(environment={}).timeouts.shutdown_ms


def test_what_no_restart_repairs_is_not_restarted() -> None:
    """The exit codes that mean so."""
    assert {int(each) for each in given("RestartPreventExitStatus").split()} == {ExitCode.REFUSED, ExitCode.OPERATOR}
