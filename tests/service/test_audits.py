"""Audits by a running service on a real broker: over HTTP, in a process of its own, of a whole log and of others."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from typer.testing import CliRunner

from snapreplay.api.cli.root import app
from snapreplay.api.server import HttpServer
from snapreplay.app.load import load_app
from snapreplay.service.control.counters import EVENTS
from snapreplay.service.live import audit_watch
from snapreplay.service.partition import drill
from tests.service.test_drill import typed
from tests.support import apps
from tests.support.deadlines import is_running
from tests.support.gates import Gate
from tests.support.stage import snapshot, until
from tests.support.tampering import damage_chunks

pytestmark = pytest.mark.kafka


def audits(here: Any, result: str, partition: int = 0) -> float | None:
    labels = {"app": here.app.app_id, "partition": str(partition), "result": result}
    return EVENTS.get_sample_value("snapreplay_audits_total", labels)


class Asked:
    """The HTTP of a service, as an operator uses it."""

    def __init__(self, service: Any) -> None:
        host, port = service.http_address
        self._http = httpx2.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False)

    async def __aenter__(self) -> Asked:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def audit(self, level: str, partition: int = 0, status: int = 202) -> Any:
        answer = await self._http.post(f"/api/v1/partitions/{partition}/audit", json={"level": level})
        assert answer.status_code == status, answer.text
        return answer.json()

    async def ended(self, operation: Any) -> Any:
        while operation["state"] == "running":
            await asyncio.sleep(0.05)
            operation = (await self._http.get(f"/api/v1/operations/{operation['id']}")).json()
        return operation


@pytest.fixture
def importable(tmp_path: Path, unique: Any) -> Any:
    """An app in a file of its own."""
    app_id = unique("audits")
    file = tmp_path / f"{app_id.replace('-', '_')}.py"
    file.write_text(f"from tests.support import apps\n\napp = apps.ledger({app_id!r})\n")
    return load_app(str(file))


async def test_a_whole_log_is_proven_and_the_proof_is_shown_at_once(stage: Any, unique: Any, monkeypatch: Any) -> None:
    """Processing goes on meanwhile. The next audit begins at the snapshot before the proof."""
    here = await stage(apps.ledger(unique("audits")))
    monkeypatch.setattr(audit_watch, "WATCH_SECONDS", 3600.0)
    await here.feed(100)
    async with here.running(http=HttpServer()) as service, Asked(service) as asked:
        await here.all_processed(service)
        await snapshot(service)
        for level in ("integrity", "changes"):
            ended = await asked.ended(await asked.audit(level))
            assert (ended["kind"], ended["state"], ended["parts"][0]["findings"]) == ("audit", "succeeded", []), ended
        await until(lambda: [each.level for each in service.restore_status()[0].audited or ()] == ["changes"])
        run = service.restore_status()[0].audit
        assert (run.state, run.level, run.batch) == ("succeeded", "changes", service.restore_status()[0].batch)
        assert audits(here, "succeeded") == 2
        await here.feed(50)
        await here.assert_exactly_once(service)


async def test_an_app_that_no_process_can_import_is_replayed_by_spark_only(
    stage: Any, unique: Any, importable: Any
) -> None:
    """It is no finding, and the message names the command. One in a module of its own is replayed."""
    for chosen, state in ((apps.ledger(unique("audits")), "failed"), (importable, "succeeded")):
        here = await stage(chosen)
        await here.feed(50)
        async with here.running(http=HttpServer()) as service, Asked(service) as asked:
            await here.all_processed(service)
            ended = await asked.ended(await asked.audit("replay"))
            (part,) = ended["parts"]
            assert (part["state"], part["findings"]) == (state, []), part
            if state == "failed":
                assert "`snapreplay audit FILE.py --level replay --since-last`" in part["detail"]
                assert audits(here, "given_up") == 1
                assert audits(here, "failed") == 0


def auditors(pid: int) -> list[psutil.Process]:
    """List the processes that audit for this one."""
    found = []
    for each in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            if "snapreplay.service.auditing.process" in each.cmdline():
                found.append(each)
    return found


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set it to give the processes of audits their orders: until then each waits, however late somebody looks."""
    given, communicate = asyncio.Event(), asyncio.subprocess.Process.communicate

    async def held_back(process: asyncio.subprocess.Process, order: bytes) -> tuple[bytes, bytes]:
        await given.wait()
        return await communicate(process, order)

    monkeypatch.setattr(asyncio.subprocess.Process, "communicate", held_back)
    return given


async def held(pid: int) -> psutil.Process:
    """Freeze the process of an audit, as soon as there is one that has stepped back: it is bound to its parent then."""
    stepped_back = [(19, 1000)]
    await until(lambda: [(each.nice(), oom_score(each)) for each in auditors(pid)] == stepped_back, "the audit")
    (auditor,) = auditors(pid)
    auditor.suspend()
    return auditor


def oom_score(process: psutil.Process) -> int:
    return int(Path(f"/proc/{process.pid}/oom_score_adj").read_text())


async def test_a_damaged_log_is_a_failure_with_its_findings(
    stage: Any, unique: Any, monkeypatch: Any, caplog: Any
) -> None:
    """The finding is in the operation, in the status, in the log and in the metric; nothing is recorded. A program
    and the command get the same."""
    here = await stage(apps.ledger(unique("audits")))
    await here.feed(100)
    async with here.running(http=HttpServer()) as service, Asked(service) as asked:
        await here.all_processed(service)
        with monkeypatch.context() as patched:
            damage_chunks(patched)
            await snapshot(service)
        ended = await asked.ended(await asked.audit("integrity"))
        (part,) = ended["parts"]
        assert (ended["state"], part["state"]) == ("failed", "failed")
        assert [(each["check"], each["topic"], each["partition"]) for each in part["findings"]] == [
            ("chunks", here.snapshots, 0),
            ("envelope", here.snapshots, 0),
        ]
        found = part["findings"][0]
        said = f"{here.snapshots}-0 offset {found['offset']}: {found['detail']}"
        assert part["detail"] == f"2 findings; chunks {said}"
        run = service.restore_status()[0].audit
        assert (run.state, run.finding_count, run.batch) == ("failed", 2, None)
        assert (audits(here, "failed"), audits(here, "given_up")) == (1, None)
        assert any("the audit at level integrity failed" in each.message for each in caplog.records)
        assert service.restore_status()[0].audited in ((), None)
        operation = await service.audit([0], "changes")
        assert operation.parts[0].findings[0].check == "chunks"
        code, output = await typed(service, "audit-now", "--level", "integrity", "--wait")
        assert (code, f"chunks: {said}" in output) == (1, True), output
        assert "a recovery would fall back" in (await typed(service, "drill", "--wait"))[1]
        await here.feed(50)
        await here.assert_exactly_once(service)


async def test_one_process_at_a_time_audits_and_a_cancel_ends_it(
    stage: Any, unique: Any, orders: asyncio.Event
) -> None:
    """The second audit of a partition is refused, that of another one waits. If memory is short, the
    process goes first."""
    here = await stage(apps.ledger(unique("audits")), partitions=2)
    async with here.running(http=HttpServer()) as service, Asked(service) as asked:
        first = await asked.audit("integrity")
        auditor = await held(os.getpid())
        refused = await asked.audit("changes", status=409)
        assert (refused["type"], refused["operation_id"]) == ("urn:snapreplay:problem:audit-running", first["id"])
        second = await asked.audit("integrity", partition=1)
        code, output = await typed(service, "cancel", first["id"])
        assert (code, "cancelled" in output) == (0, True), output
        await until(lambda: not auditor.is_running(), "the end of the process")
        orders.set()
        assert (await asked.ended(second))["state"] == "succeeded"
        runs = [each.audit for each in service.restore_status()]
        assert runs[0].detail == "it was cancelled"
        assert runs[1].started_at >= runs[0].finished_at
        assert (audits(here, "given_up"), audits(here, "failed")) == (1, 0)


async def test_an_audit_that_is_killed_is_given_up(stage: Any, unique: Any, orders: asyncio.Event) -> None:
    """By the kernel, for example: that is no finding. One that the partition leaves ends with it."""
    here = await stage(apps.ledger(unique("audits")))
    async with here.running(http=HttpServer()) as service, Asked(service) as asked:
        begun = await asked.audit("changes")
        (await held(os.getpid())).kill()
        orders.set()
        (part,) = (await asked.ended(begun))["parts"]
        assert (part["state"], part["findings"]) == ("failed", [])
        assert "ended without an answer: killed by SIGKILL; memory may be short" in part["detail"]
        orders.clear()
        await asked.audit("changes")
        auditor = await held(os.getpid())
    assert not auditor.is_running()
    assert service.control.document().operations[0].parts[0].detail == "the partition left LIVE"


async def test_the_owners_audit_and_a_killed_one_leaves_no_process(
    stage: Any, unique: Any, children: Any, tmp_path: Path
) -> None:
    """Two processes have a partition each; either is asked for both. One is killed while it audits."""
    here = await stage(apps.ledger(unique("audits")), partitions=2)
    one = children.start("ledger", here.app.app_id, instance_id="one")
    with Gate(tmp_path / "gate", "Process", passes=1).armed():
        two = children.start("ledger", here.app.app_id, instance_id="two")
    for each in (one, two):
        await asyncio.to_thread(each.wait_http)
    await until(lambda: len(one.live()) == len(two.live()) == 1, "one and one")
    await until(one.knows_all_live, "one that knows of both")
    command = ["audit-now", "--level", "changes", "--wait", "--url", one.url]
    shown = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert (shown.exit_code, shown.output.count("succeeded")) == (0, 3), shown.output
    (number,) = two.live()
    asking = httpx2.AsyncClient(base_url=one.url, trust_env=False)
    async with asking as http:
        begun = (await http.post(f"/api/v1/partitions/{number}/audit", json={})).json()
        assert begun["parts"][0]["process_id"] == two.get("/api/v1")["process_id"]
        auditor = await held(two.process.pid)
        two.kill()
        await until(lambda: not is_running(auditor.pid), "its end")


async def test_what_memory_has_no_place_for_is_given_up(stage: Any, unique: Any, monkeypatch: Any) -> None:
    """Where the level needs the state; the other one does not."""
    here = await stage(apps.ledger(unique("audits")))
    monkeypatch.setattr(drill, "available_bytes", lambda _: 0)
    await here.feed(50)
    async with here.running(http=HttpServer()) as service, Asked(service) as asked:
        await here.all_processed(service)
        (part,) = (await asked.ended(await asked.audit("changes")))["parts"]
        assert (part["state"], part["findings"], "and 0 are free" in part["detail"]) == ("failed", [], True), part
        assert (await asked.ended(await asked.audit("integrity")))["state"] == "succeeded"
