"""The pytest plugin, as it is installed: in a run of its own, in another folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deadlines import scaled

INI = """[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
pythonpath = .
"""
APP = """
from snapreplay import App, MapState, Topic

payments, balances = Topic("payments"), Topic("balances")
app = App(
    "plugged",
    inputs=[payments],
    outputs=[balances],
    state=lambda: MapState(str, int, default=int),
)


@app.handler(payments)
def on_payment(record, state, out):
    state[record.key] += record.value
    out.send(balances, key=record.key, value=state[record.key])
"""
ON_A_BROKER = """
from pathlib import Path

import pytest

from ledger import app, balances, payments


@pytest.mark.parametrize("first", [1, 2])
async def test_ledger(real_harness, first):
    async with real_harness(app) as harness:
        await harness.feed(payments, key="ada", value=first)
        await harness.feed(payments, key="ada", value=4)
        await harness.caught_up()
        assert dict(await harness.state()) == {"ada": first + 4}
        assert [sent.value for sent in await harness.outputs(balances)] == [first, first + 4]


async def test_what_is_left_running_is_killed(real_harness):
    harness = real_harness(app)
    await harness.start()
    Path("pid").write_text(str(harness.pid))
"""


def pytest_in(folder: Path, *arguments: str, **environment: str) -> str:
    """Return what a run printed; it passed."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=scaled(100),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.whole
def test_the_fixtures_give_each_test_an_app_of_its_own(broker, tmp_path):
    """Two tests on one broker see only their own records; what a test leaves running is killed."""
    (tmp_path / "ledger.py").write_text(APP)
    (tmp_path / "test_ledger.py").write_text(ON_A_BROKER)
    (tmp_path / "pytest.ini").write_text(INI)
    said = pytest_in(tmp_path, "-W", "error", SNAPREPLAY_TEST_BOOTSTRAP_SERVERS=broker.bootstrap_servers)
    assert "3 passed" in said
    pid = (tmp_path / "pid").read_text()
    assert not Path(f"/proc/{pid}").exists()
