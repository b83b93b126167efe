"""Stores that come, go and are renamed, on a running partition: nothing is dropped without a word."""

from typing import Any

import pytest

from snapreplay import App, MapState, Stores, Topic
from snapreplay.snapshots.format.envelope import RecordKind
from snapreplay.state.digest import Digest
from tests.support.tampering import with_fields

MODES = ["changes", "replay"]


def counts() -> MapState[str, int]:
    return MapState(str, int, default=int)


def app(*names: str, retired: tuple[str, ...] = (), version: str = "") -> Any:
    """Counts each payment in each of its stores; with "default" alone, in a plain MapState."""
    topics = Topic("payments-shop"), Topic("balances-shop")

    def state() -> Any:
        if names == ("default",) and not retired:
            return counts()
        return Stores(retired=retired, **{name: counts() for name in names})

    made: App[Any] = App("shop", inputs=[topics[0]], outputs=[topics[1]], state=state)

    @made.handler(topics[0])
    def on_payment(record: Any, state: Any, out: Any) -> None:
        for store in [getattr(state, n) for n in names] if isinstance(state, Stores) else [state]:
            store[record.key] += 1

    if version:
        made.__dict__["version"] = version
    return made


async def ran(bench: Any, made: App[Any], count: int, **tables: Any) -> Any:
    """LIVE until it has processed so many records more; its committed state and the last increment."""
    async with bench.live(made, records=count, **tables) as one:
        view = one.runner.store.committed_view()
    return view, bench.batches()[-1]


@pytest.mark.parametrize("mode", MODES)
async def test_a_state_of_several_stores_comes_back(bench, mode):
    """From snapshot and log, by each mode; an increment says which stores there are."""
    await bench.prepare(app("a", "b"))
    async with bench.live(records=30) as one:
        await one.snapshot()
    view, last = await ran(bench, app("a", "b"), 20, restore={"mode": mode})
    assert last.store_digests.keys() == {"a", "b"}
    again, _ = await ran(bench, app("a", "b"), 0, restore={"mode": mode})
    assert dict(again.a) == dict(again.b) == dict(view.a)
    assert sum(again.a.values()) == 50
    sizes = bench.owners[-1].status.stores
    assert [(each.name, each.entries) for each in sizes] == [("a", 20), ("b", 20)]
    assert sum(each.size_bytes for each in sizes) == bench.owners[-1].status.state_bytes
    assert bench.owners[-1].status.restore.proof.equal


async def test_a_store_may_be_added_later(bench):
    """An app with one MapState gets names beside it: its entries are the store `default`, the new ones are empty."""
    await bench.prepare(app("default"))
    _, last = await ran(bench, app("default"), 20)
    assert last.store_digests == {}
    both, last = await ran(bench, app("default", "more"), 10)
    assert sum(both.default.values()) == 30
    assert sum(both.more.values()) == 10
    assert last.store_digests.keys() == {"default", "more"}


@pytest.mark.parametrize("had", [("a", "old"), ("default", "old")])
async def test_an_undeclared_store_stops_the_partition_and_both_ways_out_work(bench, had):
    """Renamed or forgotten, its entries are kept: the error names it. Declared again or retired, it continues."""
    await bench.prepare(app(*had))
    await ran(bench, app(*had), 20)
    kept = had[0]
    for wrong in (app(kept), app(kept, "renamed")):
        error = (await bench.failure(wrong)).error
        assert error.kind == "UnknownStore"
        assert "in the store 'old', which this app neither has nor retires" in error.message
        assert "old=MapState(…)" in error.hint
        assert 'retired=("old",)' in error.hint
    assert "live" not in bench.owners[-1].phases
    view, _ = await ran(bench, app(*had), 5)
    assert sum(view.old.values()) == 25
    view, last = await ran(bench, app(kept, "renamed", retired=("old",)), 5)
    assert last.store_digests.keys() == {kept, "renamed"}
    assert sum(getattr(view, kept).values()) == 30


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lean", [False, True])
async def test_a_retired_store_is_cleared_once_and_for_all(bench, mode, lean):
    """With the next batch, by one word in its increment; a recovery from before it leads to the same state."""
    if lean and mode == "changes":
        return
    tables: dict[str, Any] = {"restore": {"mode": mode}, "changelog": {"enabled": not lean}}
    await bench.prepare(app("a", "old"), **tables)
    async with bench.live(records=20) as one:
        await one.snapshot()
    after = app("a", retired=("old",), version="2")
    async with bench.live(after) as one:
        before = one.status.digest
        await one.feed(20)
        await one.feed(20)
    cleared = [each for each in bench.batches() if each.cleared]
    assert [each.cleared for each in cleared] == [["old"]]
    assert str(cleared[0].digest) != before
    async with bench.live(after) as one:
        assert one.status.restore.proof.equal
        assert one.status.restore.mode == mode
        assert one.status.state_entries == 20
        assert dict(one.runner.store.committed_view().a) == {f"k{n}": 3 for n in range(20)}


@pytest.mark.parametrize("mode", MODES)
async def test_a_retired_store_is_taken_out_of_the_code_once_a_batch_has_cleared_it(bench, mode):
    """Also if only a plain MapState is left, although snapshot and log have the entries and how they were deleted."""
    await bench.prepare(app("default", "old"))
    async with bench.live(records=20) as one:
        await one.snapshot()
    await ran(bench, app("default", retired=("old",)), 20)
    view, last = await ran(bench, app("default"), 20, restore={"mode": mode})
    assert bench.owners[-1].status.restore.mode == mode
    assert dict(view) == {f"k{n}": 3 for n in range(20)}
    assert (last.store_digests, last.cleared) == ({}, [])


async def test_a_mismatch_names_the_store(bench):
    """And both digests of it; those of the others are right."""
    await bench.prepare(app("a", "b"))
    _, last = await ran(bench, app("a", "b"), 20)
    wrong = {**last.store_digests, "b": Digest(1, 2, 3)}
    forged = with_fields(store_digests=wrong, digest=Digest(9, 9, 9))
    bench.tamper(bench.increments, RecordKind.INCREMENT, forged)
    error = (await bench.failure(app("a", "b"), restore={"mode": "changes"})).error
    assert error.kind == "DigestMismatch"
    assert "store b has" in error.message
    assert "store a" not in error.message
