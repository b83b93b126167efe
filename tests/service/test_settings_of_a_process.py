"""The settings of a running process, as its command shows them."""

import asyncio

import pytest
from typer.testing import CliRunner

from snapreplay.api.cli.root import app
from tests.support import apps

pytestmark = pytest.mark.kafka


async def typed(child, *words):
    """Type a command at this process; return what it printed."""
    result = await asyncio.to_thread(CliRunner().invoke, app, [*words, "--url", child.url])
    assert result.exit_code == 0, result.output
    return result.output


async def test_a_process_shows_its_settings(stage, unique, children, monkeypatch):
    """A variable, an option and a default."""
    monkeypatch.setenv("SNAPREPLAY_BATCH__LINGER_MS", "7")
    here = await stage(apps.ledger(unique("shown")))
    child = children.start("ledger", here.app.app_id, group__session_timeout_ms=44_000)
    await asyncio.to_thread(child.wait_live)
    rows = {row[0]: row[1:] for line in (await typed(child, "config")).splitlines() if len(row := line.split()) > 2}
    assert rows["batch.linger_ms"] == ["7", "SNAPREPLAY_BATCH__LINGER_MS", "in", "the", "environment"]
    assert rows["group.session_timeout_ms"][:3] == ["44000", "by", "an"]
    assert rows["snapshot.before_stop"] == ["True", "default"]
