"""The history of a key, as it is read from the log of its partition."""

from typing import Any

import msgspec
import pytest

from snapreplay import App, MapState, Stores, Topic
from snapreplay.service.control.kafka_reads import KeyHistory, ReadKeyHistory
from snapreplay.service.control.state_reads import NotReadable
from snapreplay.service.topics import histories
from snapreplay.service.topics.histories import key_history_of
from snapreplay.snapshots.format.envelope import RecordKind
from tests.support import apps
from tests.support.in_memory import InMemory
from tests.support.owner import Owner

ADA = msgspec.msgpack.encode("ada")


async def batch(here: InMemory, one: Owner, *records: tuple[str, Any]) -> int:
    """Let these records be batches of their own; return the last one."""
    await here.send(records)
    await one.position(here.log(here.input).end)
    number: int = one.status.batch
    return number


async def read(here: InMemory, store: str = "default", **asked: Any) -> KeyHistory:
    """Read the history of "ada", without an owner."""
    context = await here.context()
    wanted = ReadKeyHistory(store, "ada", 0, **asked)
    return await key_history_of(context.cluster, context.increments, wanted, ADA, 1)


def values(found: KeyHistory) -> list[Any]:
    return [None if each.stored is None else msgspec.msgpack.decode(each.stored) for each in found.changes]


async def test_each_change_is_there_newest_first_with_its_batch_and_records(bench):
    """Set, changed, deleted and set again, among many batches of others; a batch that leaves the key alone is none of
    its changes. The records of the batch are those that changed it."""
    await bench.prepare(apps.told("app"))
    async with bench.live() as one:
        batches = []
        for value in (1, 2, None, 3):
            batches.append(await batch(bench, one, ("ada", value)))
            for other in range(9):
                await batch(bench, one, ("bob", other))
        found = await read(bench)
        assert values(found) == [3, None, 2, 1]
        assert [each.batch for each in found.changes] == batches[::-1]
        assert {each.owner_epoch for each in found.changes} == {one.status.owner_epoch}
        for each, position in zip(found.changes, (30, 20, 10, 0), strict=True):
            (part,) = each.ranges
            assert (part.topic, part.start_offset, part.end_offset) == (bench.input, position, position + 1)
        (increments,) = await bench.read(bench.increments)
        assert {each.increment_offset for each in found.changes} <= {each.offset for each in increments}
        assert (found.from_batch, found.is_whole, found.batches_without_changes) == (0, True, 0)


async def test_a_limit_ends_it_and_before_continues_from_there(bench):
    """Page by page each change comes once, the last page says that it is whole."""
    await bench.prepare(apps.told("app"))
    async with bench.live() as one:
        for value in range(7):
            await batch(bench, one, ("ada", value), ("bob", value))
        pages, before = [], None
        for _ in range(5):
            found = await read(bench, limit=3, before=before)
            pages.append(values(found))
            before = found.from_offset
            if found.is_whole:
                break
        assert pages == [[6, 5, 4], [3, 2, 1], [0]]
        assert (await read(bench, before=0)).from_batch is None


def having(*stores: str, retired: tuple[str, ...] = ()) -> App[Any]:
    """Each record goes under its key in each of these stores."""
    inputs = Topic("told-app")
    app: App[Any] = App(
        "app", inputs=[inputs], state=lambda: Stores(retired=retired, **{name: MapState(str, int) for name in stores})
    )

    @app.handler(inputs)
    def on_told(record: Any, state: Any, out: Any) -> None:
        for name in stores:
            getattr(state, name)[record.key] = record.value

    return app


async def test_a_store_that_was_retired_has_lost_the_key(bench):
    """No record of changes has that. Later the store is there again."""
    await bench.prepare(having("items", "marks"))
    versions = [having("items", "marks"), having("items", retired=("marks",)), having("items", "marks")]
    for value, app in enumerate(versions):
        async with bench.live(app) as one:
            await batch(bench, one, ("ada", value))
    assert values(await read(bench, store="items")) == [2, 1, 0]
    assert values(await read(bench, store="marks")) == [2, None, 0]


async def test_a_trimmed_log_is_not_whole_and_says_from_where(bench):
    """The increment that trimming leaves at the start has lost its changes: it was not looked at."""
    await bench.prepare(apps.told("app"))
    async with bench.live() as one:
        await batch(bench, one, ("ada", 1))
        kept = await batch(bench, one, ("ada", 2))
        await batch(bench, one, ("ada", 3))
        whole = await read(bench)
        bench.trim(bench.increments, whole.changes[1].increment_offset)
        found = await read(bench)
        assert values(found) == [3]
        assert (found.from_batch, found.is_whole, found.batches_without_changes) == (kept + 1, False, 0)


async def test_batches_without_recorded_changes_are_counted(bench):
    """With the changelog off it is not known what they changed; those with it are still there."""
    await bench.prepare(apps.told("app"))
    async with bench.live() as one:
        await batch(bench, one, ("ada", 1))
    async with bench.live(changelog={"enabled": False}) as one:
        await batch(bench, one, ("ada", 2))
        await batch(bench, one, ("ada", 3))
        found = await read(bench)
    assert (values(found), found.batches_without_changes, found.is_whole) == ([1], 2, True)


async def test_damaged_changes_are_counted_and_a_damaged_last_increment_is_said(bench):
    """What lies behind damaged changes is still shown. Which batch is the last one must be known."""
    await bench.prepare(apps.told("app"))
    async with bench.live() as one:
        for value in (1, 2, 3):
            await batch(bench, one, ("ada", value))
    bench.tamper(bench.increments, RecordKind.CHANGES, lambda value: value[:-1] + bytes([value[-1] ^ 1]), 1)
    found = await read(bench)
    assert (values(found), found.batches_without_changes, found.is_whole) == ([3, 1], 1, True)
    bench.tamper(bench.increments, RecordKind.INCREMENT, lambda value: value[:-1] + bytes([value[-1] ^ 1]))
    with pytest.raises(NotReadable, match="its log cannot be read"):
        await read(bench)


async def test_what_is_read_for_one_answer_is_bounded(bench, monkeypatch):
    """Beyond so many bytes, the answer says how far it looked."""
    await bench.prepare(apps.told("app"))
    async with bench.live() as one:
        for value in range(40):
            await batch(bench, one, ("ada", value))
        whole = await read(bench, limit=100)
        assert (len(whole.changes), whole.is_whole) == (40, True)
        monkeypatch.setattr(histories, "LOG_BYTES_MAX", 16 * 1024)
        found = await read(bench, limit=100)
        assert not found.is_whole
        assert 0 < len(found.changes) < 40
        assert found.changes == whole.changes[: len(found.changes)]
        assert found.from_batch == found.changes[-1].batch
