"""B3: the command of the hint, typed by somebody else in another process, is the way out."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.accepting import command_in, finding_in
from tests.support.stage import processed
from tests.support.tampering import trim

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).resolve().parents[2]


async def test_b3_what_the_hint_prints_can_be_typed(past, tmp_path):
    """First with --dry-run, which changes nothing; then for real, as a document for a script."""
    then = await past()
    here = then.here
    await here.feed(20)
    trim(here.bootstrap_servers, then.input, 0, 130)
    hint = (await here.failure()).error.hint
    (tmp_path / "accepted.py").write_text(
        f"from tests.support import apps\napp = apps.ledger({here.app.app_id!r})\n"
    )
    typed = [
        {"MODULE:APP": "accepted:app", "TEXT": "known outage"}.get(w, w) for w in command_in(hint)
    ]

    async def run(*more: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SNAPREPLAY_KAFKA__BOOTSTRAP_SERVERS": here.bootstrap_servers,
        }
        command = [sys.executable, "-m", "snapreplay.api.cli", *typed[1:], *more]
        return await asyncio.to_thread(
            subprocess.run, command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    dry = await run("--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "offsets 120 to 130 are never processed" in dry.stdout
    assert dry.stdout.splitlines()[-1] == "dry run: nothing was written"
    assert finding_in((await here.failure()).error.hint) == finding_in(hint)
    done = await run("--output", "json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["finding"], document["reason"]) == (finding_in(hint), "known outage")
    async with here.running() as service:
        await processed(service, {0: 140})
        (decision,) = service.restore_status()[0].decisions
        assert (decision.offset, decision.reason) == (document["offset"], "known outage")
