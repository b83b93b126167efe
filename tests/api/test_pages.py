"""Pages of lists: each row once, and none is left out while others come."""

from __future__ import annotations

import msgspec
import pytest

from snapreplay.api import operation_views
from tests.support.fake_control import LIVE, WRITTEN, FakeControl


@pytest.fixture
def control() -> FakeControl:
    """Seven partitions with a snapshot each."""
    return FakeControl(
        [
            msgspec.structs.replace(
                LIVE,
                partition=number,
                snapshot=msgspec.structs.replace(WRITTEN, partition=number, snapshot_id=f"s{number}"),
            )
            for number in range(7)
        ]
    )


LISTS = {"/api/v1/partitions": "partition", "/api/v1/snapshots": "snapshot_id"}


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


def test_the_newest_operations_are_listed_and_older_ones_are_found_by_their_ids(client, monkeypatch):
    """A command for many partitions waits for each by its id."""
    monkeypatch.setattr(operation_views, "LISTED_MAX", 3)
    actions = ("pause", "resume", "drill")
    made = [client.post(f"/api/v1/partitions/{number}/{each}").json()["id"] for number in (0, 1) for each in actions]
    listed = client.get("/api/v1/operations").json()["items"]
    assert [each["id"] for each in listed] == made[:-4:-1]
    assert [client.get(f"/api/v1/operations/{each}").json()["id"] for each in made] == made


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
