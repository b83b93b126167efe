"""The drop of a savepoint over HTTP. On a real broker: tests/service/test_kept.py."""

from __future__ import annotations

from snapreplay.service.control.savepoint_list import SavepointShown, SavepointsUnread
from tests.api.test_routes import problem


def test_an_unknown_savepoint_is_not_dropped(client, control):
    """404 at once. A request that comes again with its key has its operation; what cannot be read can be dropped."""
    path, key = "/api/v1/savepoints/before-42", {"Idempotency-Key": "8e03978e"}
    problem(client.delete(path), 404, "unknown-savepoint")
    assert control.operations() == []
    control.kept = [SavepointShown("ledger", "before-42", usable=True, by=None, reason=None, partitions=())]
    dropped = client.delete(path, headers=key)
    assert dropped.status_code == 202
    control.kept = []
    assert client.delete(path, headers=key).json()["id"] == dropped.json()["id"]
    control.finish(control.operations()[0], "succeeded")

    async def unread(name):
        raise SavepointsUnread("no broker answers")

    control.savepoints = unread
    assert client.delete(path).status_code == 202


def test_a_savepoint_that_is_being_kept_is_dropped_when_it_is(client, control):
    """Its topics may not be there yet. Both operations go one after the other: a refusal would leave it behind."""
    assert client.post("/api/v1/savepoints", json={"name": "before-42"}).status_code == 202
    assert client.delete("/api/v1/savepoints/before-42").status_code == 202
    for each in control.operations():
        control.finish(each, "succeeded")
    problem(client.delete("/api/v1/savepoints/before-42"), 404, "unknown-savepoint")
