"""An app with a broadcast table on a simulated Kafka: the table's topic has three partitions, the app has one."""

import json
from typing import Any

import pytest

from snapreplay import App, Stores, Topic, nullable
from snapreplay import json as json_of
from snapreplay.app.failure import PREFIX
from snapreplay.errors import RecordsGone
from snapreplay.service.core.kafka_errors import OffsetTrimmed
from snapreplay.service.decisions import reset, savepoints
from snapreplay.service.decisions.init import init_app, init_with_state
from snapreplay.service.decisions.inputs import NotDrained, Wish, carry_out, propose
from snapreplay.service.decisions.reset import ResetTarget
from snapreplay.service.decisions.state_import import named as of_id
from snapreplay.service.live import recoverability_monitor
from snapreplay.service.ports import TopicPartition
from snapreplay.service.preflight import inspect
from snapreplay.service.recovery.copy_in_log import restorable
from snapreplay.service.recovery.input_identity import InputShrunk
from snapreplay.service.topics.requirements import MissingInput
from snapreplay.snapshots.jobs.fixed_logs import PartitionLogs
from tests.service.live.test_pausing import WHY, asked
from tests.service.partition.test_standby import Copied
from tests.support import apps, reference
from tests.support.accepting import accepted
from tests.support.audited_topics import MemoryTopics
from tests.support.compacting import Topics
from tests.support.stage import until

RATES = "rates-app"
MODES = pytest.mark.parametrize("mode", ["changes", "replay"])


def rate(bench, number: int, currency: str | None, value: Any, partition: int | None = None) -> None:
    """Write a row into a partition of the table's topic, 1 ms after the one before."""
    log = bench.broker.log(RATES, number if partition is None else partition)
    key = None if currency is None else currency.encode()
    log.append(key, None if value is None else json.dumps(value).encode(), (), 1000 + number, None)


async def prepared(bench, partitions: int = 3, **tables: Any):
    """The table has the rates 1, 2 and 3, one in each partition."""
    bench.broker.create(RATES, partitions)
    await bench.prepare(apps.converted("app"), **tables)
    for number in range(3):
        rate(bench, number, f"currency-{number}", number + 1)
    return bench


def view(one) -> dict[str, dict[str, Any]]:
    state = one.runner.store.committed_view()
    return {name: reference.as_plain(getattr(state, name)) for name in ("rates", "accounts")}


async def all_rows(one, **rates: int) -> None:
    expected = {name.replace("_", "-"): value for name, value in rates.items()}
    await until(lambda: view(one)["rates"] == expected, lambda: view(one)["rates"])


async def owned_with(bench, **rates: int) -> None:
    """Let an owner read these rows, and end it."""
    async with bench.live() as one:
        await all_rows(one, **rates)


ROWS = {"currency_0": 1, "currency_1": 2, "currency_2": 3}


@MODES
async def test_all_partitions_are_read_and_restored(bench, mode):
    """A batch names each by topic and partition, and so do positions and the genesis. A crash later the state is the
    same, by snapshot and changes or by a replay of all partitions; what came meanwhile is read once."""
    await prepared(bench, restore={"mode": mode})
    async with bench.live() as one:
        await all_rows(one, **ROWS)
        await one.feed(5)
        before = view(one)
        assert {each.topic: each.position for each in one.status.inputs} == {
            "payments-app": 5,
            **{f"{RATES}/{number}": 1 for number in range(3)},
        }
    assert before["accounts"]["k1"] == {"n": 1, "sum": 2}
    rate(bench, 1, "currency-1", None)
    async with bench.live() as one:
        assert one.status.restore.proof.equal
        assert one.status.restore.mode == mode
        await all_rows(one, currency_0=1, currency_2=3)
        assert view(one)["accounts"] == before["accounts"]
    (genesis, *_, last) = bench.batches()
    assert (
        last.genesis.start_offsets
        == genesis.positions
        == {"payments-app": 0, f"{RATES}/0": 0, f"{RATES}/1": 0, f"{RATES}/2": 0}
    )
    assert last.positions[f"{RATES}/1"] == 2


async def test_a_pause_stops_all_its_partitions(bench, monkeypatch):
    """Their lag is shown; after the end of the pause each row counts once."""
    monkeypatch.setattr(recoverability_monitor, "WATCH_SECONDS", 1.0)  # a pause looks at the ends that often
    await prepared(bench)
    async with bench.live() as one:
        await all_rows(one, **ROWS)
        assert await asked(one, WHY) == ("succeeded", "")
        rate(bench, 0, "currency-1", 5, 1)  # before the payments
        await bench.feed(5)
        await until(lambda: [each.lag for each in one.status.inputs] == [5, 0, 1, 0], lambda: one.status.inputs)
        assert view(one)["rates"]["currency-1"] == 2
        assert await asked(one, None) == ("succeeded", "")
        await one.position(5)
        await all_rows(one, currency_0=1, currency_1=5, currency_2=3)
        assert view(one)["accounts"]["k1"] == {"n": 1, "sum": 5}


async def test_rows_are_there_before_later_records_of_another_input(bench):
    """As with any input: after a backlog, the oldest record is processed first."""
    bench.broker.create(RATES, 3)
    await bench.prepare(apps.converted("app"))
    await bench.feed(5)
    for number in range(3):
        bench.broker.log(RATES, number).append(f"currency-{number}".encode(), b"7", (), 999, None)
    async with bench.live() as one:
        await one.position(5)
        assert [view(one)["accounts"][f"k{n}"]["sum"] for n in range(5)] == [0, 7, 14, 0, 0]


async def test_a_partition_that_is_added_is_read_from_its_beginning(bench):
    await prepared(bench)
    async with bench.live() as one:
        await all_rows(one, **ROWS)
        topic_id = bench.broker.topic_ids[RATES]
        bench.broker.grow(RATES, 4)
        assert bench.broker.topic_ids[RATES] == topic_id
        rate(bench, 3, "currency-3", 4)
        one.runner.view_seen(await inspect(bench.app, bench.settings(), bench.cluster, running=one.context.view))
        await all_rows(one, **ROWS, currency_3=4)
        (decision,) = one.status.decisions
        assert f"input {RATES}/3 is read from offset 0 on" in decision.decided
        assert decision.reason == "they are the partitions of broadcast tables"
    await owned_with(bench, **ROWS, currency_3=4)


def seen_ids(bench) -> dict[str, str]:
    """The topic ids as a supervisor sees them."""
    ids = dict(bench.broker.topic_ids)
    return ids | {f"{RATES}/{number}": ids[RATES] for number in range(3) if RATES in ids}


def remade(bench, partitions: int) -> None:
    bench.broker.delete(RATES)
    bench.broker.create(RATES, partitions)


async def test_fewer_partitions_are_refused_by_name(bench):
    """The topic was created again; with all partitions and their records it is a copy, which is accepted."""
    await prepared(bench)
    async with bench.live() as one:
        await all_rows(one, **ROWS)
        remade(bench, 2)
        one.runner.topics_seen(seen_ids(bench))
        error = (await one.phase("failed")).error
    assert error.kind == "InputShrunk"
    assert error.message == (
        "partition 2 of broadcast table rates-app was read, but the topic now has 2 partitions: it was created again"
    )
    assert (await bench.failure()).error.kind == "InputShrunk"
    with pytest.raises(NotDrained, match=f"input {RATES}-0 is not processed to its end"):
        await propose(without_table(), bench.settings(), bench.cluster, Wish())
    (proposed,) = await propose(without_table(), bench.settings(), bench.cluster, Wish(leave_records=True))
    assert f"{RATES}/2 is retired at offset 1; the topic does not exist" in "".join(proposed.change.lines)
    remade(bench, 3)
    for number in range(3):
        rate(bench, number, f"currency-{number}", number + 1)
    await owned_with(bench, **ROWS)


async def test_the_only_copy_is_written_before_fewer_partitions_are_refused(bench):
    """Only a replay of the lost partition would restore it. A version without the table resumes with all rows."""
    await prepared(bench, restore={"mode": "replay"}, changelog={"enabled": False})
    async with bench.live() as one:
        await all_rows(one, **ROWS)
        await one.feed(5)
        before = view(one)
        remade(bench, 2)
        one.runner.topics_seen(seen_ids(bench))
        assert (await one.phase("failed")).error.kind == "InputShrunk"
    with pytest.raises(InputShrunk, match=f"partition 2 of broadcast table {RATES} was read"):
        await reset.propose(bench.app, bench.settings(), bench.cluster, ResetTarget("", "earliest"), "wrong")
    after = without_table()
    (proposed,) = await propose(after, bench.settings(), bench.cluster, Wish(leave_records=True))
    await carry_out(proposed)
    async with bench.live(after) as one:
        assert view(one) == before


async def test_no_replay_reads_a_partition_that_is_not_there(bench):
    """For any topic id: an older cluster has none."""
    await prepared(bench, restore={"mode": "replay"}, changelog={"enabled": False})
    await owned_with(bench, **ROWS)
    context, last = await bench.context(), bench.batches()[-1]
    assert await restorable(context, last)
    bench.broker.partition_counts[RATES] = 2
    assert await restorable(context, last) is False


async def test_a_broker_that_lags_behind_is_asked_again(bench):
    """It knows the same topic with fewer partitions."""
    await prepared(bench)
    await owned_with(bench, **ROWS)
    bench.broker.partition_counts[RATES] = 2
    one = await bench.owner()
    await until(lambda: one.status.error is not None, "it is missed")
    assert one.status.error.kind == "InputMissing"
    assert one.status.error.message.startswith(
        "partition 2 of broadcast table rates-app was read, but the topic now has 2 partitions"
    )
    bench.broker.partition_counts[RATES] = 3
    await one.phase("live")
    await all_rows(one, **ROWS)


async def test_a_partition_with_other_records_is_refused_until_it_is_accepted(bench):
    """The error and its command name the partition of the topic; its rows then come on top of the old ones."""
    await prepared(bench)
    await owned_with(bench, **ROWS)
    remade(bench, 3)
    rate(bench, 0, "currency-0", 1)
    rate(bench, 1, "currency-4", 40)
    rate(bench, 2, "currency-2", 3)
    error = (await bench.failure()).error
    assert error.kind == "InputReplaced"
    assert error.message.startswith(f"input {RATES}-1 holds another record at offset 0")
    await accepted(bench, error.hint)
    await owned_with(bench, **ROWS, currency_4=40)


async def test_rows_that_are_compacted_stay_in_the_state(bench):
    """The anchors of a partition may be gone, too. What a later row replaces is never missed."""
    await prepared(bench)
    for value in (7, 8):
        rate(bench, value, "currency-2", value, 2)
    await owned_with(bench, currency_0=1, currency_1=2, currency_2=8)
    log = bench.broker.log(RATES, 2)
    assert log.compact(3, lambda ways: ways[-1])["superseded record"] == 2
    rate(bench, 9, "currency-2", None, 2)
    async with bench.live() as one:
        assert one.status.restore.proof.equal
        await all_rows(one, currency_0=1, currency_1=2)


async def test_rows_that_are_trimmed_unread_are_missed_by_name(bench):
    """What was read may go: it is in the state."""
    await prepared(bench)
    await owned_with(bench, **ROWS)
    bench.broker.log(RATES, 2).trim(1)
    await owned_with(bench, **ROWS)
    for value in (5, 6):
        rate(bench, value, "currency-2", value, 2)
    bench.broker.log(RATES, 2).trim(2)
    error = (await bench.failure()).error
    assert error.kind == "InputTrimmed"
    assert error.message.startswith(f"input {RATES}-2: the next record to process is at offset 1, but the log begins")
    await accepted(bench, error.hint)
    await owned_with(bench, currency_0=1, currency_1=2, currency_2=6)


async def test_a_topic_that_is_deleted_is_waited_for(bench, caplog):
    """It may come back with its records; no command retires a table that the app declares."""
    caplog.set_level("INFO", "snapreplay.partition")
    await prepared(bench)
    async with bench.live() as one:
        await all_rows(one, **ROWS)
        bench.broker.delete(RATES)
        one.runner.topics_seen(seen_ids(bench))
        await until(lambda: one.status.error is not None and one.status.error.kind == "InputMissing", "it is missed")
        assert one.status.error.message == f"input {RATES} no longer exists"
        assert [each.message.count("no longer exists (") for each in caplog.records if "compared" in each.message] == [
            1
        ]
        assert "--retire" not in one.status.error.hint
        with pytest.raises(MissingInput, match=f"topic '{RATES}' of app 'app' does not exist"):
            await inspect(bench.app, bench.settings(), bench.cluster)
        bench.broker.create(RATES, 3)
        for number in range(3):
            rate(bench, number, f"currency-{number}", number + 1)
        await one.phase("live")
        await all_rows(one, **ROWS)


async def test_an_error_of_a_read_names_the_input(bench):
    """A recovery looks its position up by that name."""
    await prepared(bench)
    bench.broker.log(RATES, 2).trim(1)
    reader = await (await bench.context()).cluster.reader()
    place = TopicPartition(f"{RATES}/2", 0)
    with pytest.raises(OffsetTrimmed, match=f"{RATES}-2") as trimmed:
        await anext(aiter(reader.read(place, 0, 1)))
    assert (trimmed.value.facts["topic"], trimmed.value.facts["partition"]) == place
    await reader.close()


def test_a_job_reads_no_partition_that_is_not_there():
    """A client would wait for it: the topic was created again with fewer."""
    reader = MemoryTopics()
    reader.create([RATES], 2)
    reader.append(RATES, {1: [b"1"]})
    with Topics(reader).open() as client:
        logs = PartitionLogs(client, "app", 0)
        ((row,),) = logs.input(f"{RATES}/1", 0, 1)
        assert (row.topic, row.value) == (f"{RATES}/1", b"1")
        with pytest.raises(RecordsGone, match=f"topic {RATES} has 2 partitions: {RATES}-2 is not there"):
            next(iter(logs.input(f"{RATES}/2", 0, 1)))


async def test_a_row_without_a_key_is_a_dead_letter_of_each_partition(bench):
    """It names the record by its place in Kafka."""
    await prepared(bench, errors={"policy": "dead_letter"})
    rate(bench, 5, None, 7, 2)
    async with bench.live() as one:
        await until(lambda: [each.position for each in one.status.inputs] == [0, 1, 1, 2], lambda: one.status.inputs)
        await all_rows(one, **ROWS)
    ((letter,),) = await bench.read(bench.dead_letters)
    why = {name.removeprefix(PREFIX): value for name, value in letter.headers}
    assert (why["topic"], why["partition"], why["offset"]) == (RATES.encode(), b"2", b"1")
    assert why["message"].startswith(b"rates-app-2-1: key cannot be read as utf8: null")


async def test_a_row_that_stops_the_partition_is_named_by_its_place(bench):
    await prepared(bench)
    bench.broker.log(RATES, 1).append(b"currency-1", b"no number", (), 2000, None)
    error = (await bench.failure()).error
    assert error.message.startswith("rates-app-1-1: value cannot be read as nullable(json(int))")


async def test_it_begins_at_its_start_wherever_the_others_begin(bench):
    bench.broker.create(RATES, 3)
    bench.app = apps.converted("app")
    bench.create_topics()
    for number in range(3):
        rate(bench, number, f"currency-{number}", number + 1)
    await bench.feed(5)
    await init_app(bench.app, bench.settings(), bench.cluster, "latest")
    async with bench.live() as one:
        await all_rows(one, **ROWS)
        assert view(one)["accounts"] == {}


async def test_a_reset_begins_with_the_whole_table(bench):
    """At any place where the other inputs continue."""
    await prepared(bench)
    await bench.feed(5)
    async with bench.live() as one:
        await one.position(5)
        await all_rows(one, **ROWS)
    (proposed,) = await reset.propose(bench.app, bench.settings(), bench.cluster, ResetTarget("", "latest"), "wrong")
    await reset.carry_out(proposed)
    async with bench.live() as one:
        await all_rows(one, **ROWS)
        assert view(one)["accounts"] == {}


async def begin_again(bench) -> Any:
    (proposed,) = await reset.propose(bench.app, bench.settings(), bench.cluster, ResetTarget("before", ""), "wrong")
    await reset.carry_out(proposed)
    return bench


async def begin_another(bench) -> Any:
    heir = bench.beside(of_id(apps.converted("app"), "heir"))
    await init_with_state(heir.app, heir.settings(), heir.cluster, "app", "positions")
    return heir


@pytest.mark.parametrize("begin", [begin_again, begin_another])
async def test_a_partition_that_a_state_did_not_read_begins_at_its_start(bench, begin):
    """Its topic has got it since: a savepoint is restored, and another app begins where this one stopped."""
    await prepared(bench)
    await bench.feed(5)
    async with bench.live() as one:
        await one.position(5)
        await all_rows(one, **ROWS)
        await savepoints.create(bench.app, bench.settings(), bench.cluster, "before")
    bench.broker.grow(RATES, 4)
    rate(bench, 3, "currency-3", 4)
    async with (await begin(bench)).live() as one:
        await all_rows(one, **ROWS, currency_3=4)
        assert {each.topic: each.position for each in one.status.inputs} == {
            "payments-app": 5,
            **{f"{RATES}/{number}": 1 for number in range(4)},
        }


def without_table(state: Any = None) -> App[Any]:
    """The version before, and after: no table."""
    state = state or apps.converted("app").state
    app = App("app", inputs=[Topic("payments-app")], outputs=[Topic("balances-app")], state=state)
    app.handler(app.inputs[0])(lambda record, state, out: None)
    return app


async def test_an_app_takes_it_in_by_itself_and_gives_it_up_by_a_command(bench):
    """It is read from its beginning. Without it, a version is refused until its inputs are retired; the rows stay."""
    await bench.prepare(without_table())
    await bench.feed(5)
    async with bench.live() as one:
        await one.position(5)
    bench.app = apps.converted("app")
    bench.broker.create(RATES, 3)
    for number in range(3):
        rate(bench, number, f"currency-{number}", number + 1)
    await owned_with(bench, **ROWS)
    after = without_table()
    error = (await bench.failure(after)).error
    assert error.kind == "WrongLog"
    assert "`snapreplay inputs" in error.hint
    (proposed,) = await propose(after, bench.settings(), bench.cluster, Wish())
    assert len(proposed.change.retired) == 3
    await carry_out(proposed)
    async with bench.live(after) as one:
        await all_rows(one, **ROWS)
        assert [each.topic for each in one.status.inputs] == ["payments-app"]


def of_a_pattern() -> App[Any]:
    """The table is partitioned, and its topic is found by a pattern."""
    rates, broadcast = Topic.matching("rates-.*", value=nullable(json_of(int))), apps.converted("app")
    app = App("app", inputs=[broadcast.inputs[0], rates], outputs=broadcast.outputs, state=broadcast.state)
    app.handler(app.inputs[0])(broadcast.handlers[app.inputs[0]])
    app.table(rates, store="rates")
    return app


@pytest.mark.parametrize(("app", "partitions"), [(apps.converted("app"), 3), (of_a_pattern(), 1)])
async def test_a_table_that_comes_back_with_a_new_store_is_read_from_its_beginning(bench, app, partitions):
    """Its old store was retired with it, so nothing of what was read before is left."""
    bench.broker.create(RATES, partitions)
    await bench.prepare(app)
    for number in range(3):
        rate(bench, number, f"currency-{number}", number + 1, number % partitions)
    await owned_with(bench, **ROWS)
    before, after = bench.app, without_table(lambda: Stores(accounts=apps.accounts(), retired=("rates",)))
    (proposed,) = await propose(after, bench.settings(), bench.cluster, Wish())
    await carry_out(proposed)
    await bench.feed(1)
    async with bench.live(after) as one:
        await one.position(1)
    async with bench.live(before) as one:
        await all_rows(one, **ROWS)


@MODES
async def test_a_standby_takes_over_with_all_rows(bench, mode):
    """Its copy follows by changes, or by a replay of every partition of the table."""
    await prepared(bench, restore={"mode": mode}, changelog={"enabled": mode == "changes"})
    async with bench.live() as one:
        await all_rows(one, **ROWS)
        copied = Copied(bench, await bench.context("two"))
        rate(bench, 4, "currency-1", 5, 1)
        await one.feed(5)
        await copied.warm(one.committer.chain.last.batch)
        before = view(one)
    ((store, copy),) = await copied.handed_over()
    two = await bench.owner("two")
    two.runner.take(store, copy)
    await two.phase("live")
    assert view(two) == before
    assert two.status.restore.warm == "copied"
