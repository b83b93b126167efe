"""An audit of a running service on a broker that asks who may do what."""

import asyncio
import re

import pytest

from tests.service.test_access import KAFKA_ACLS, Restricted, here
from tests.support import apps
from tests.support.deadlines import scaled

__all__ = ["here"]

pytestmark = pytest.mark.kafka


async def test_an_audit_by_the_service_names_what_it_may_not(here, unique, monkeypatch):
    """It is given up, and each command that is named leads one step on, at last to a proof that is recorded. The
    password of the service goes to the process that audits by no command line and no environment."""
    stage = await Restricted(here, apps.ledger(unique("audits"))).allowed()
    started, named = [], list[str]()
    start = asyncio.create_subprocess_exec

    async def starting(*words, **options):
        started.append((words, options["env"]))
        return await start(*words, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", starting)
    async with stage.running() as service:
        await service.wait_live(scaled(30))
        while (ended := await service.audit(level="integrity")).state != "succeeded":
            (part,) = ended.parts
            assert part.findings == ()
            (command,) = re.findall(KAFKA_ACLS, part.detail)
            assert command not in named, "it did not help"
            named.append(command)
            await asyncio.to_thread(here.allow, command.partition("--add ")[2])
        assert service.restore_status()[0].audit.state == "succeeded"
    assert any(f"--group {stage.app.app_id}-audit" in each for each in named)
    password = str(stage.settings().kafka["sasl.plain.password"])
    assert password not in str(started)
