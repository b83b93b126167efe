"""The history of a key over HTTP; how it is read: tests/service/topics/test_key_history.py."""

import msgspec
import pytest

from snapreplay.service.clock import time_of
from snapreplay.service.control.kafka_reads import KeyChange, KeyHistory, ReadKeyHistory, ReadRecords
from snapreplay.service.control.state_reads import NotReadable, UnknownMap, WrongRead
from tests.api.test_routes import problem
from tests.api.test_state_routes import KEYS

PATH = "/api/v1/key-history/default/ada"
AT = time_of(1_795_000_000_000)
CHANGES = (
    KeyChange(9, 80, AT, 60, (ReadRecords("payments", 12, 15),), None),
    KeyChange(7, 70, AT, 60, (), msgspec.msgpack.encode({"n": 5, "raw": b"\xff"})),
    KeyChange(4, 40, AT, 2, (), msgspec.msgpack.encode(None)),
)
FOUND = KeyHistory(3, 37, 1, is_whole=False, changes=CHANGES, partition_count=4)


def test_a_change_has_the_value_after_it_and_where_its_records_are(client, control):
    """A deleted key has no value, which is not the value null."""
    control.key_histories = lambda _: FOUND
    told = client.get(PATH + "?partition=3").json()
    assert [(each["batch"], each["value"], each["deleted"]) for each in told.pop("items")] == [
        (9, None, True),
        (7, {"n": 5, "raw": {"base64": "/w=="}}, False),
        (4, None, False),
    ]
    assert told == {
        "store": "default",
        "key": "ada",
        "partition": 3,
        "partition_count": 4,
        "from_batch": 3,
        "from_offset": 37,
        "batches_without_changes": 1,
        "is_whole": False,
    }
    first = client.get(PATH + "?partition=3").json()["items"][0]
    assert first["ranges"] == [{"topic": "payments", "start_offset": 12, "end_offset": 15}]
    assert (first["written_at"], first["increment_offset"], first["owner_epoch"]) == ("2026-11-18T11:06:40Z", 80, 60)


def test_it_is_read_anew_each_time(client, control):
    """Another process may have written the log while nothing happened in this one."""
    for _ in range(2):
        client.get(PATH + "?partition=0&limit=7&before=99")
    assert control.key_histories_asked == [ReadKeyHistory("default", "ada", 0, 7, 99)] * 2


@pytest.mark.parametrize("path", KEYS, ids=range(len(KEYS)))
def test_the_key_is_read_from_the_bytes_of_the_path(client, control, path):
    """With any content, as where it is looked up; also a key that ends with "/history"."""
    assert client.get(f"/api/v1/key-history/a%2Fb/{path}?partition=0").status_code == 200
    assert client.get("/api/v1/key-history/default/ada/history?partition=0").status_code == 200
    assert control.key_histories_asked == [
        ReadKeyHistory("a/b", KEYS[path], 0),
        ReadKeyHistory("default", "ada/history", 0),
    ]


@pytest.mark.parametrize("query", ["", "?partition=x", "?partition=0&limit=0", "?partition=0&limit=101",
                                   "?partition=0&before=-1"])  # fmt: skip
def test_a_wrong_part_is_refused(client, control, query):
    """Nothing is read."""
    problem(client.get(PATH + query), 422, "invalid-request")
    assert control.key_histories_asked == []


@pytest.mark.parametrize(
    ("error", "status", "name"),
    [
        (UnknownMap(("items",)), 404, "unknown-store"),
        (WrongRead("path.key", "the keys are int"), 422, "invalid-request"),
        (NotReadable(3, "unknown", "its log cannot be read: no broker"), 503, "partition-not-readable"),
    ],
)
def test_what_cannot_be_read_is_a_problem(client, control, error, status, name):
    """By its own kind, as where the key is looked up."""

    def refuse(_):
        raise error

    control.key_histories = refuse
    problem(client.get(PATH + "?partition=3"), status, name)
