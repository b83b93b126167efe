"""Values in bytes: as they were made when they are read back, and equal bytes for equal states."""

import subprocess
import sys
from dataclasses import dataclass

import msgspec
import pytest
from msgspec import inspect

from snapreplay.app.app import App
from snapreplay.app.harness import Harness
from snapreplay.app.made_record import record
from snapreplay.app.topic import Topic
from snapreplay.errors import UsageError
from snapreplay.state.canonical import encoder_of
from snapreplay.state.map import MapState


class Both(msgspec.Struct, frozen=True):
    seen: dict[str, int]
    tags: set[str]


@dataclass(frozen=True)
class Nested:
    tags: frozenset[str]
    by_day: dict[str, set[str]]


class Plain(msgspec.Struct):
    recent: dict[str, int] = {}


requests, evicted = Topic("requests"), Topic("evicted")


def app_of(value_type, change):
    cache = App(
        "lru", inputs=[requests], outputs=[evicted], state=lambda: MapState(str, value_type, default=value_type)
    )

    @cache.handler(requests)
    def on_request(record, state, out):
        change(state, record.key)
        recent = getattr(state["lru"], "recent", state["lru"])
        if len(recent) > 3:
            oldest = next(iter(recent))
            del recent[oldest]
            out.send(evicted, key=oldest, value=None)

    return cache


def touch(state, key):
    recent = getattr(state["lru"], "recent", state["lru"])
    recent.pop(key, None)
    recent[key] = len(key)


@pytest.mark.parametrize("value_type", [dict, dict[str, int], Plain])
def test_the_end_of_a_batch_does_not_change_the_order_of_a_dict(value_type):
    """A cache that evicts what came first evicts the same, with any batches, and after a crash."""
    keys = [*"zyxwvzaqzb"]
    sent = []
    for size in (1, 3, len(keys)):
        harness = Harness(app_of(value_type, touch))
        for start in range(0, len(keys), size):
            harness.feed_batch([record(requests, key=key, value=None) for key in keys[start : start + size]])
            harness.crash(seed=start)
        sent.append([each.key for each in harness.outputs(evicted)])
    assert sent[0] == sent[1] == sent[2] == ["z", "y", "x", "w", "v", "a"][: len(sent[0])] != []


SCRIPT = """
from msgspec import inspect
from snapreplay.state.canonical import encoder_of
from tests.snapreplay.state.test_canonical import Both, Nested
tags = {str(n) for n in range(50)}
both = Both({"z": 1, "a": 2}, tags)
nested = Nested(frozenset(tags), {"z": tags, "a": set()})
for value in (both, nested, tags):
    node = inspect.type_info(set[str] if value is tags else type(value))
    print(encoder_of(node)(value).hex())
"""


def test_sets_are_equal_bytes_in_every_process():
    """Their order differs from process to process; with a dict beside them, that keeps its own."""
    found = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    both = Both({"z": 1, "a": 2}, {"t"})
    back = msgspec.msgpack.decode(encoder_of(inspect.type_info(Both))(both), type=Both)
    assert (list(back.seen), back) == (["z", "a"], both)


@pytest.mark.parametrize("value_type", [dict[int, str], list[dict[bytes, int]]])
def test_a_dict_with_other_keys_than_texts_is_refused_at_once(value_type):
    """And not its first value."""
    with pytest.raises(UsageError, match="the keys of a dict in it are of type") as refused:
        MapState(str, value_type)
    assert "dict[str, …]" in refused.value.hint
    MapState(str, dict[str, str])
    MapState(tuple[str, int], str)
