"""A warm copy and the free memory of its process."""

from __future__ import annotations

import itertools
import re

import pytest

from snapreplay.service.control.status import SnapshotUsed
from snapreplay.service.control.vocabulary import LONG_AGO
from snapreplay.service.partition import standby
from snapreplay.service.runtime.free_memory import memory_of
from tests.service.partition.test_standby import Copied, followed, live
from tests.support.in_memory import virtual
from tests.support.stage import until


@virtual
async def test_a_copy_that_does_not_fit_is_not_loaded_before_it_does(bench, monkeypatch):
    """The process would end, and its own partitions with it. The status has the reason."""
    one = await live(bench)
    await bench.feed(10)
    await one.position(10)
    await one.snapshot()
    monkeypatch.setattr(standby, "available_bytes", lambda _: 10)
    copied = Copied(await bench.context("two"))
    await until(lambda: len(copied.told) == 3, "three attempts")
    assert {(each.state, each.error.kind) for each in copied.told} == {("loading", "NoRoom")}
    assert re.fullmatch(r"the copy takes about [\d,]+ bytes of memory, and 10 are free", copied.status.error.message)
    monkeypatch.setattr(standby, "available_bytes", lambda _: 10**9)
    assert (await copied.warm(one.status.batch)).error is None
    await copied.standby.end()


@virtual
async def test_it_is_said_once_a_minute_that_a_copy_does_not_fit(bench, monkeypatch, caplog):
    """Although what is free is another figure at each attempt."""
    await bench.prepare(restore={"retry_backoff_max_ms": 5000})
    one = await live(bench)
    await bench.feed(10)
    await one.position(10)
    await one.snapshot()
    free = itertools.count(10)
    monkeypatch.setattr(standby, "available_bytes", lambda _: next(free))
    copied = Copied(await bench.context("two"))
    await until(lambda: len(copied.told) == 40, "forty attempts", 1000)
    said = [each.message for each in caplog.records if "starts over" in each.message]
    assert 2 <= len(said) <= 10
    assert "(repeated" in said[-1]
    await copied.standby.end()


@virtual
async def test_the_rest_of_a_copy_is_judged_by_the_part_that_is_loaded(bench, monkeypatch):
    """A manifest does not say how large the entries are when unpacked. What was loaded is given up at once."""
    _, copied = await followed(bench)
    store = copied.standby._store
    here = standby.Room(store, lambda: None)
    here.restore(snapshot=SnapshotUsed("5c1d", 1, 9, entries=100, size_bytes=1000, created_at=LONG_AGO))
    rest_bytes = memory_of(10 * store.size_bytes, 100) * 9 // 10
    monkeypatch.setattr(standby, "available_bytes", lambda _: rest_bytes)
    here.progress("bytes", 0, 100, 1000)
    monkeypatch.setattr(standby, "available_bytes", lambda _: rest_bytes - 1)
    here.progress("records", 0, 100, 1000)
    with pytest.raises(standby.NoRoom, match="of which 10% are loaded") as raised:
        here.progress("bytes", 0, 100, 1000)
    copied.standby._failed(raised.value)
    assert store.size_bytes == 0
    await copied.standby.end()
