"""Audits by a running service on a real broker: over HTTP, in a process of its own, of a whole log and of others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from snapreplay.api.server import HttpServer
from snapreplay.app.load import load_app
from snapreplay.service.control.counters import EVENTS
from snapreplay.service.live import audit_watch
from tests.support import apps
from tests.support.stage import snapshot, until

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
    for app, state in ((apps.ledger(unique("audits")), "failed"), (importable, "succeeded")):
        here = await stage(app)
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
