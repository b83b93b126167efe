"""The history of a key by the command; the other reads of a state: tests/service/test_state_reads.py."""

import json
from typing import Any

import msgspec
import pytest

from snapreplay.service.control.kafka_reads import KeyHistory, ReadKeyHistory
from snapreplay.service.control.state_reads import PartRead, StateAnswer
from tests.api.test_key_history import CHANGES, FOUND
from tests.api.test_state_routes import AT

NOTHING = KeyHistory(0, 1, 0, is_whole=True, changes=(), partition_count=3)


def test_the_changes_of_all_partitions_are_printed(invoke: Any, url: Any, control: Any) -> None:
    """With what the batch read, and beside them what is not known: how far it was read, what was not recorded."""
    answers = {1: FOUND, 2: msgspec.structs.replace(NOTHING, from_batch=None, is_whole=False)}
    control.key_histories = lambda read: msgspec.structs.replace(
        answers.get(read.partition, NOTHING), partition_count=3
    )
    result = invoke("get", "--url", url, "default", "ada", "--history", "-n", "7")
    assert result.exit_code == 0, result.stderr
    assert control.key_histories_asked == [ReadKeyHistory("default", "ada", number, 7) for number in range(3)]
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith((" ", "1")) and "2026" in line]
    assert [(row[0], row[1], row[3]) for row in rows] == [
        ("1", "9", "(deleted)"),
        ("1", "7", '{"n":'),
        ("1", "4", "null"),
    ]
    assert rows[0][-2:] == ["payments", "12…14"]
    assert result.stderr.splitlines() == [
        "partition 1: read back to batch 3, not all of it",
        "partition 1: 1 batch without recorded changes",
        "partition 2: nothing was read, not all of it",
    ]


def test_one_partition_as_json(invoke: Any, url: Any, control: Any) -> None:
    """The document of HTTP, one line for each partition."""
    control.key_histories = lambda _: FOUND
    result = invoke("get", "--url", url, "default", "ada", "--history", "--partition", "3", "-o", "json")
    assert [each["batch"] for each in json.loads(result.stdout)["items"]] == [each.batch for each in CHANGES]
    assert [each.partition for each in control.key_histories_asked] == [3]


def test_a_history_has_neither_copies_nor_a_batch_to_wait_for(invoke: Any, url: Any, control: Any) -> None:
    """It is refused before anything is asked."""
    for option in ("--stale",):
        result = invoke("get", "--url", url, "default", "ada", "--history", option)
        assert (result.exit_code, "does not take --stale" in result.stderr) == (2, True)
    assert control.key_histories_asked == []


@pytest.mark.parametrize("words", [("scan", "default", "--partition", "0"), ("get", "default", "ada")])
def test_what_is_stored_neither_moves_the_cursor_nor_begins_a_line(
    invoke: Any, url: Any, control: Any, words: Any
) -> None:
    """Keys and values are of the producers of the inputs: a terminal would carry out what they hold."""
    stored = "\x1b]0;mine\x07\x9b2J\n0  ada \u2192 1000"
    found = PartRead(AT, ((stored, msgspec.msgpack.encode(stored)),))
    control.reading = lambda _: StateAnswer((found,), (), 1)
    result = invoke(*words, "--url", url)
    assert result.exit_code == 0, result.stderr
    assert r"\x1b]0;mine\x07\x9b2J\n0  ada" in result.stdout
    assert not {"\x1b", "\x07", "\x9b"} & set(result.stdout)
