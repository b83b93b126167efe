"""Tests of the process of an audit: it replays the app, with two hash seeds, and answers any order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from snapreplay.app.load import load_app
from snapreplay.service.auditing.work import answer_to
from snapreplay.service.clock import time_of
from snapreplay.service.config.table import given_in
from snapreplay.service.control.audit_run import AuditAnswer, AuditOrder, AuditRun
from snapreplay.service.partition import audits
from snapreplay.snapshots.proof.level import Level
from tests.support.audited_topics import BrokerTopics
from tests.support.stage import Stage, snapshot

pytestmark = pytest.mark.kafka

APP = """
from tests.support import apps

def book(value, account):
    apps.add(value, account)
    account["sum"] += {more}

app = apps.ledger("{app_id}", book)
"""


@pytest.fixture
def replayed(broker: Any, unique: Any, tmp_path: Path) -> Any:
    """Runs an app from a file, then has it replayed by an order as its service would make it."""

    async def run(more: str, *, trims: bool = False, **changed: Any) -> AuditAnswer:
        app_id = unique("work")
        file = tmp_path / f"{app_id.replace('-', '_')}.py"
        file.write_text(APP.format(app_id=app_id, more=more))
        app = load_app(str(file))
        here = await Stage(broker.bootstrap_servers, app).prepare()
        async with here.running() as service:
            await here.feed(40)
            await here.all_processed(service)
            await snapshot(service)
        if trims:
            BrokerTopics(broker.bootstrap_servers, unique("trims")).trim(here.input, 0, 30)
        order = AuditOrder(app_id, 0, Level.REPLAY, given_in(here.settings()), str(file), app.version)
        encoded = msgspec.json.encode(msgspec.structs.replace(order, **changed))
        answer, _ = await audits._talked(encoded)
        return msgspec.json.decode(answer, type=AuditAnswer)

    return run


async def test_the_handlers_lead_to_what_was_recorded(replayed) -> None:
    """The proof is recorded at level replay."""
    answer = await replayed("0")
    assert (answer.problem, answer.defect, answer.finding_count, answer.not_recorded) == ("", "", 0, "")
    assert answer.proven_batch > 0


@pytest.mark.whole
async def test_code_that_depends_on_the_hash_seed_is_found_by_a_process_with_another_one(replayed) -> None:
    """In one process it gives the same twice, so only a second one can tell."""
    answer = await replayed(f"hash('a') % 1_000_003 if __import__('os').getpid() != {os.getpid()} else 7_000_007")
    assert [each.check for each in answer.findings] == ["replay"], answer
    assert "(not deterministic; another PYTHONHASHSEED gives another result" in answer.findings[0].detail


async def test_what_comes_from_outside_is_told_from_code_that_is_not_deterministic(replayed) -> None:
    """Two processes agree, and what was recorded is something else."""
    answer = await replayed(f"1 if __import__('os').getpid() != {os.getpid()} else 2")
    assert [each.check for each in answer.findings] == ["replay"], answer
    assert "(damage, or an influence from outside)" in answer.findings[0].detail


async def test_a_replay_without_its_input_is_no_finding(replayed) -> None:
    """What was replayed after it is proven, and the rest is counted. If nothing was, only the lower level is proven."""
    answer = await replayed("0", trims=True)
    assert (answer.problem, answer.defect, answer.finding_count) == ("", "", 0)
    assert (answer.without_input, answer.proven_level) == (1, "replay")
    run = AuditRun("running", "replay", time_of(0))
    judged = audits._judged(run, answer)
    assert judged.state == "succeeded"
    assert judged.detail.endswith("are whole; 1 stretch not replayed, because the input was trimmed")
    judged = audits._judged(run, msgspec.structs.replace(answer, proven_level=Level.CHANGES))
    assert (judged.state, judged.findings) == ("given_up", ())
    assert judged.detail.endswith("because the input was trimmed, but only level changes is proven")
    judged = audits._judged(run, AuditAnswer(0))
    assert (judged.state, judged.detail) == ("given_up", "nothing is wrong, but no batch could be proven at this level")


async def test_what_cannot_be_done_is_a_problem_and_never_a_finding(replayed) -> None:
    """A wrong app, a broker that does not answer, a broken order."""
    answer = await replayed("0", app="nowhere:app")
    assert answer.problem.startswith("app module 'nowhere' was not found")
    assert (answer.finding_count, answer.defect) == (0, "")
    nobody = {"kafka": {"bootstrap.servers": "127.0.0.1:1"}, "timeouts": {"metadata_ms": 3000, "claim_grace_ms": 500}}
    answer = await replayed("0", settings=nobody)
    assert ("127.0.0.1:1" in answer.problem, answer.finding_count) == (True, 0), answer
    answer = msgspec.json.decode(answer_to(b"no order"), type=AuditAnswer)
    assert "DecodeError" in answer.defect


async def test_code_that_was_changed_since_the_start_is_not_replayed(replayed) -> None:
    """It would prove another program. A service that is started with it has its version, and replays it."""
    answer = await replayed("0", app_version="former")
    assert "of the app now, but this service runs version former (restart the service with the code" in answer.problem
    assert not (await replayed("0")).problem
