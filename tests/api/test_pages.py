"""Pages of lists: each row once, and none is left out while others come."""

from __future__ import annotations

import msgspec
import pytest

from snapreplay.service.control.protocol import SetLogLevel
from tests.support.fake_control import LIVE, WRITTEN, FakeControl


@pytest.fixture
def control() -> FakeControl:
    """Seven operations, and seven partitions with a snapshot each."""
    made = FakeControl(
        [
            msgspec.structs.replace(
                LIVE,
                partition=number,
                snapshot=msgspec.structs.replace(WRITTEN, partition=number, snapshot_id=f"s{number}"),
            )
            for number in range(7)
        ]
    )
    for number in range(7):
        made.perform(SetLogLevel("snapreplay", f"level {number}"))
    return made


LISTS = {"/api/v1/partitions": "partition", "/api/v1/snapshots": "snapshot_id", "/api/v1/operations": "id"}


@pytest.mark.parametrize(("path", "name"), LISTS.items())
@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_pages_are_the_list(client, path, name, limit):
    """In the same order; the last page says that it is."""
    everything = client.get(path).json()
    assert (len(everything["items"]), everything["next_after"]) == (7, None)
    rows, asked = [], {"limit": limit}
    while "after" not in asked or asked["after"] is not None:
        page = client.get(path, params=asked).json()
        assert len(page["items"]) <= limit
        rows += page["items"]
        assert len(rows) <= 7
        asked["after"] = page["next_after"]
    assert [each[name] for each in rows] == [each[name] for each in everything["items"]]


def test_what_comes_meanwhile_moves_no_page(client, control):
    """It is on the first one, which was read before."""
    first = client.get("/api/v1/operations", params={"limit": 3}).json()
    control.perform(SetLogLevel("snapreplay", "newer"))
    second = client.get("/api/v1/operations", params={"limit": 4, "after": first["next_after"]}).json()
    reasons = [each["reason"] for each in (*first["items"], *second["items"])]
    assert reasons == [f"snapreplay: level {number}" for number in range(6, -1, -1)]


@pytest.mark.parametrize("path", LISTS)
def test_behind_what_is_listed_no_more_there_is_no_page(client, path):
    """An empty page would say that the list has ended."""
    refused = client.get(path, params={"after": "77"})
    assert refused.status_code == 404
    assert refused.json()["type"] == "urn:snapreplay:problem:unknown-after"


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("limit", ["0", "-1", "100000", "x"])
def test_a_page_has_a_bound(client, path, limit):
    """And at least one row."""
    assert client.get(path, params={"limit": limit}).status_code == 422
