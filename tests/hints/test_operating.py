"""Hints of what an operator does with processes and savepoints, carried out as printed."""

import re

from fastapi.testclient import TestClient
from typer.testing import CliRunner

from snapreplay.api.app import create_app
from snapreplay.api.cli.root import app as commands
from snapreplay.service.control.savepoint_list import SavepointsUnread
from tests.api.conftest import control, served, url
from tests.support.fake_control import NOW, FakeControl, Local
from tests.support.served import peer

__all__ = ["control", "served", "url"]


def test_when_savepoints_cannot_be_read_readiness_says_how_the_cluster_is(monkeypatch):
    """503 names the request; that one answers check by check."""
    control = FakeControl()

    async def unread(name):
        raise SavepointsUnread("no broker answers")

    monkeypatch.setattr(control, "savepoints", unread)
    http = TestClient(create_app(Local(control), now=lambda: NOW))
    refused = http.get("/api/v1/savepoints")
    assert (refused.status_code, refused.json()["detail"]) == (503, "the savepoints cannot be read: no broker answers")
    (path,) = re.findall(r"GET (/\S+)", refused.json()["hint"])
    assert "checks" in http.get(path).json()


def test_a_host_that_is_named_has_processes(url, control):
    """A misspelt one is refused with those that there are."""

    def drained(host):
        return CliRunner().invoke(commands, ["drain", "--url", url, "--host", host], prog_name="snapreplay")

    control.peers = (peer("p2", ""),)
    refused = drained("nowhere")
    assert refused.exit_code == 2
    (named,) = re.findall(r"hosts with processes: (\S+)", refused.stderr)
    assert drained(named.split(",")[0]).exit_code == 0
