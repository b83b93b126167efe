"""The routes to entries: every answer, and every bad input that they can meet, with a control that has no state."""

import msgspec
import pytest

from snapreplay.api.asking import WAITING_MAX
from snapreplay.errors import UnknownPartition
from snapreplay.service.control.protocol import TooManyCommands
from snapreplay.service.control.state_reads import (
    AnsweredBy,
    NotRead,
    NotReadable,
    PartRead,
    ReadAt,
    ReadKey,
    ReadLate,
    ReadRange,
    StateAnswer,
    UnknownMap,
    WrongRead,
)
from tests.api.test_owners import both, http_of_two
from tests.api.test_routes import problem

__all__ = ["both", "http_of_two"]

AT = ReadAt(0, 60, {"payments": 500}, 130, AnsweredBy.OWNER, 0.0, "", "p1", "host-a")
VALUE = msgspec.msgpack.encode({"n": 5, "raw": b"\xff", "text": b"tea"})
FOUND = PartRead(AT, (("ada", VALUE),))


def answering(control, *parts, not_read=(), count=1):
    control.reading = lambda _: StateAnswer(parts, not_read, count)


def refusing(control, error):
    def refuse(_):
        raise error

    control.reading = refuse


def test_a_value_says_which_state_it_is_from(client, control):
    """Batch, positions, owner and who answers; bytes are text or base64, as `tail` shows them."""
    answering(control, FOUND)
    found = client.get("/api/v1/state/default/ada").json()
    assert (found["store"], found["key"], found["read"], found["not_read"]) == ("default", "ada", [0], [])
    (item,) = found["items"]
    assert item.pop("value") == {"n": 5, "raw": {"base64": "/w=="}, "text": "tea"}
    assert item == msgspec.to_builtins(AT)
    assert client.head("/api/v1/state/default/ada").content == b""


@pytest.mark.parametrize("depth", [101, 400, 700, 900, 5000])
def test_a_value_that_is_nested_deep_is_cut_and_hides_no_other(client, control, depth):
    deep = b"\x91" * depth + b"\x90"
    answering(control, PartRead(AT, (("deep", deep), ("ada", VALUE))))
    one, listed = client.get("/api/v1/state/default/deep"), client.get("/api/v1/state/default?partition=0")
    for found in (one, listed):
        assert (found.status_code, "nested deeper than 100 levels" in found.text) == (200, True)
    assert [each["key"] for each in listed.json()["items"]] == ["deep", "ada"]


KEYS = {
    "a/b": "a/b", "a%2Fb": "a/b", "": "", "a%20b+c": "a b+c", "%00": "\0", "%252F": "%2F", "a%3Fb%23": "a?b#",
    "%5B%22tea%22,7%5D": '["tea",7]', "dGVh=": "dGVh=", "x/": "x/", "/x": "/x", "k" * 30_000: "k" * 30_000,
}  # fmt: skip


@pytest.mark.parametrize("path", KEYS, ids=range(len(KEYS)))
def test_the_key_is_read_from_the_bytes_of_the_path(client, control, path):
    """With any content, encoded or not."""
    answering(control, FOUND)
    assert client.get(f"/api/v1/state/default/{path}").status_code == 200
    assert control.reads == [ReadKey("default", KEYS[path])]


NO_PATHS = [
    *(f"{path}?partition=0" for path in ("default/%FF", "default/%ED%A0%80", "default/%zz", "default/%", "%FF/ada")),
    "%FF?partition=0", "default?partition=0&prefix=%FF", "default", "default?partition=-1", "default?partition=x",
    "default?partition=0&limit=0", "default?partition=0&limit=1001", "default?partition=0&stale=2",
    "default?partition=0&scope=all",
]  # fmt: skip


@pytest.mark.parametrize("path", NO_PATHS, ids=range(len(NO_PATHS)))
def test_what_is_not_utf8_or_no_value_of_its_field_is_refused(client, control, path):
    """Nothing is read. It would otherwise be read as another key, or another bound, with replaced characters."""
    answering(control, FOUND)
    problem(client.get(f"/api/v1/state/{path}"), 422, "invalid-request")
    assert control.reads == []


def test_a_page_asks_for_what_the_query_says(client, control):
    """Every part of it; and says where the next page begins."""
    answering(control, PartRead(AT, (((b"\xff", 7), VALUE), ((b"tea", 8), VALUE)), next_after='["dGVh",8]'), count=4)
    query = {"partition": 3, "prefix": "[]", "from": "a", "to": "ö&", "after": "+", "limit": 2}
    found = client.get("/api/v1/state/holds", params={**query, "stale": True}).json()
    assert control.reads == [ReadRange("holds", 3, "[]", "a", "ö&", "+", 2, True)]
    assert [each["key"] for each in found["items"]] == [["/w==", 7], ["dGVh", 8]]
    assert (found["next_after"], found["partition_count"], found["batch"]) == ('["dGVh",8]', 4, 60)


def test_a_missing_key_is_only_absent_where_all_partitions_were_read(client, control):
    """Else it is not known: 503 names what was not read. Found is found, with what was not."""
    nothing = PartRead(AT, ())
    answering(control, nothing)
    assert problem(client.get("/api/v1/state/default/x"), 404, "key-not-found")["partitions"] == [0]
    answering(control, nothing, not_read=(NotRead(1, "loading", "it is loading"),), count=3)
    document = problem(client.get("/api/v1/state/default/x"), 503, "partition-not-readable")
    assert "partition 1: it is loading; partition 2: no known process owns it" in document["detail"]
    document = problem(client.get("/api/v1/state/default/x?scope=local"), 503, "partition-not-readable")
    assert "partition 2" not in document["detail"]
    answering(control, FOUND, not_read=(NotRead(1, "loading", "it is loading"),), count=2)
    assert client.get("/api/v1/state/default/x").json()["not_read"][0]["phase"] == "loading"


REFUSED = {
    "unknown-store": (404, UnknownMap(("carts", "items"))),
    "invalid-request": (422, WrongRead("path.key", "the keys of this store are int: write it in digits, such as 7")),
    "unknown-partition": (404, UnknownPartition(9, 6)),
    "cluster-not-reached": (503, UnknownPartition(0, None)),
    "partition-not-here": (404, NotReadable(5, None, "another process owns it, or none does yet")),
    "partition-not-readable": (503, NotReadable(1, "loading", "it is loading")),
    "read-late": (503, ReadLate(2.0)),
    "too-many-requests": (503, TooManyCommands(WAITING_MAX)),
    "internal": (500, RuntimeError("secret")),
}


@pytest.mark.parametrize("path", ["default/ada?partition=1", "default?partition=1"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_a_problem(client, control, name, path):
    """One kind for each; a phase that is known is in it."""
    status, error = REFUSED[name]
    refusing(control, error)
    document = problem(client.get(f"/api/v1/state/{path}"), status, name)
    assert "secret" not in str(document)
    assert document.get("phase") == ("loading" if name == "partition-not-readable" else None)


async def test_each_partition_of_another_process_says_why_it_was_not_read(both):
    """By its phase. The refusal of that process is about all of its partitions, and was repeated for each."""
    answering(both.one, PartRead(AT, ()), count=6)
    theirs = msgspec.structs.replace(AT, partition=4)
    answering(both.two, PartRead(theirs, ()), not_read=(NotRead(5, "failed", "it is failed"),), count=6)
    answer = await both.ask.get("/api/v1/state/default/x")
    detail = problem(answer, 503, "partition-not-readable")["detail"]
    assert detail.endswith("partition 3: no known process owns it; partition 5: it is failed")
    assert "process p2" not in detail
