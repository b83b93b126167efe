"""A state of an older schema_version is upgraded by the owner, once, and every other way is refused by name."""

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from snapreplay import App, MapState, Topic
from snapreplay.app.upgrade import UpgradeFailed
from snapreplay.service.core.refusals import NotUpgradable, SchemaDiffers
from snapreplay.service.decisions.accept import propose as propose_acceptance
from snapreplay.service.decisions.patch import carry_out
from snapreplay.service.decisions.patch import propose as propose_patch
from snapreplay.service.recovery.examine import OlderState
from snapreplay.state.cursor import load_slices
from snapreplay.state.keys import KeyCodec
from snapreplay.state.recorded import UnknownFields
from snapreplay.state.values import StoredValueUnreadable
from snapreplay.testing import real_service
from snapreplay.testing.real_service import RealService
from snapreplay.testing.service_process import Answered, Ask, Request
from tests.support import apps
from tests.support.accepting import accepted, fenced_while_writing


def second(bench, upgrade=None, **options):
    """The same app with cents: schema_version 2."""
    (payments,), (balances,) = bench.app.inputs, bench.app.outputs
    app = App(
        bench.app.app_id,
        inputs=[payments],
        outputs=[balances],
        state=lambda: MapState(str, int, default=int),
        schema_version=2,
        **options,
    )

    @app.handler(payments)
    def on_payment(record, state, out):
        state[record.key] += record.value["amount"] * 100
        out.send(balances, key=record.key, value={"id": record.id, "cents": state[record.key]})

    app.upgrade(1, dict)(upgrade or (lambda key, old: (key, old["sum"] * 100)))
    return app


def folded(count):
    """Return the state of the second app after so many payments."""
    sums: dict[str, int] = {}
    for i in range(count):
        sums[f"k{i % 20}"] = sums.get(f"k{i % 20}", 0) + i * 100
    return sums


async def test_the_owner_upgrades_once_and_says_so(bench):
    """One decision with both digests, no outputs; the next recovery finds a state of the new version."""
    await bench.past()
    before, outputs = bench.batches()[-1], await bench.read(bench.output)
    app = second(bench)
    async with bench.live(app) as one:
        assert one.view() == folded(120)
        upgraded = bench.batches()[-1]
        assert (upgraded.batch, upgraded.begins_chain, upgraded.outputs) == (before.batch + 1, True, {})
        assert (before.origin.schema_version, upgraded.origin.schema_version) == (1, 2)
        said = upgraded.decision
        assert said["finding"].startswith("state-upgraded-")
        assert f"digest {before.digest} became {upgraded.digest}; no outputs" in said["decided"]
        assert "20 entries became 20" in said["decided"]
        assert [each.finding for each in one.status.decisions] == [said["finding"]]
        assert await bench.read(bench.output) == outputs
        await one.feed(20)
    async with bench.live(app) as one:
        assert one.view() == folded(140)
        assert len(one.status.decisions) == 1
    assert sum(each.decision is not None for each in bench.batches()) == 1


class V1(msgspec.Struct):
    sum: float = 0.0


class V2(msgspec.Struct):
    cents: int = 0


def of_structs(value, **options):
    app = App("app", inputs=[Topic("payments-app")], state=lambda: MapState(str, value, default=value), **options)

    @app.handler(app.inputs[0])
    def on_payment(record, state, out):
        state.setdefault(record.key, value())

    return app


async def test_fields_of_the_older_values_are_forgotten(bench):
    """Nothing that is stored has them any more: a later version may use their names."""
    await bench.prepare(of_structs(V1))
    async with bench.live() as one:
        await one.feed(1)
    assert bench.batches()[-1].fields == {"default": ["sum"]}
    app = of_structs(V2, schema_version=2)
    app.upgrade(1, V1)(lambda key, old: (key, V2(round(old.sum * 100))))
    async with bench.live(app):
        assert bench.batches()[-1].fields == {"default": ["cents"]}


class Less(msgspec.Struct):
    """V1 without its field."""


async def test_a_field_that_the_old_type_leaves_out_is_not_dropped_unseen(bench):
    """The log knows it; `dropped` says that it is meant."""
    await bench.prepare(of_structs(V1))
    async with bench.live() as one:
        await one.feed(1)
    app = of_structs(V2, schema_version=2)
    app.upgrade(1, Less)(lambda key, old: (key, V2(1)))
    status = await bench.failure(app)
    assert status.error.kind == UnknownFields.__name__
    app = of_structs(V2, schema_version=2)
    app.upgrade(1, Less, dropped=("sum",))(lambda key, old: (key, V2(1)))
    async with bench.live(app) as one:
        assert one.view()["k0"] == V2(1)


async def test_the_older_code_is_refused_afterwards(bench):
    """By the number that it would have to have; the new one continues. The other way back is an upgrade to the old
    entries: it is named, too."""
    await bench.past()
    async with bench.live(second(bench)):
        pass
    status = await bench.failure()
    assert status.error.kind == SchemaDiffers.__name__
    assert "was written with schema_version 2, but the app has 1" in status.error.message
    async with bench.live(second(bench)) as one:
        assert one.view() == folded(120)
    assert "`App(…, schema_version=3)` and `@app.upgrade(from_schema=2)`" in status.error.hint
    older = apps.ledger(bench.app.app_id, schema_version=3)
    older.upgrade(from_schema=2, value=int)(lambda key, total: (key, {"n": 6, "sum": total}))
    async with bench.live(older) as one:
        assert {key: each["sum"] for key, each in one.view().items()} == folded(120)


async def test_an_upgrade_that_fails_changes_nothing_and_names_the_entry(bench):
    """The old version continues; mended, the new one takes over."""
    await bench.past()

    def fails(key, old):
        if key == "k7":
            raise ValueError("no rate")
        return key, old["sum"]

    status = await bench.failure(second(bench, fails))
    assert status.error.kind == UpgradeFailed.__name__
    assert "state['k7'] cannot be upgraded: " in status.error.message
    assert "ValueError: no rate" in status.error.message
    await bench.restored()
    async with bench.live(second(bench)) as one:
        assert one.view() == folded(120)


async def test_an_upgrade_that_is_another_one_each_time_is_not_committed(bench):
    """A count of calls would become a balance: the log stays as it is, and the old version continues."""
    await bench.past()
    count = len(bench.batches())
    calls = iter(range(10**6))
    status = await bench.failure(second(bench, lambda key, old: (key, next(calls))))
    assert status.error.kind == UpgradeFailed.__name__
    assert "becomes something else each time" in status.error.message
    assert len(bench.batches()) == count
    await bench.restored()


async def test_an_upgrade_that_is_interrupted_is_done_again(bench, monkeypatch):
    """Fenced behind the snapshot and before the decision: the log leads to the old state, and the next try has it."""
    await bench.past()
    left = fenced_while_writing(monkeypatch, 2)
    async with bench.live(second(bench)) as one:
        assert one.view() == folded(120)
    assert left == [0]
    assert sum(each.decision is not None for each in bench.batches()) == 1


async def test_a_state_that_only_a_replay_leads_to_needs_a_last_stop_of_the_old_version(bench):
    """No changes in the log: the new handlers must not run on old values."""
    lean = {"changelog": {"enabled": False}}
    await bench.past(**lean)
    status = await bench.failure(second(bench), **lean)
    assert status.error.kind == NotUpgradable.__name__
    assert "start the version that wrote it again and stop it gracefully" in status.error.hint
    async with bench.live(**lean) as one:
        await one.snapshot()
    async with bench.live(second(bench), **lean) as one:
        assert one.view() == folded(120)


async def test_commands_leave_a_state_that_is_to_be_upgraded_alone(bench):
    """What they wrote would be taken for entries of the new version."""
    await bench.past()
    app, settings = second(bench), bench.settings()
    line = b'{"key": "k0", "expected": 3, "value": 4}'
    with pytest.raises(OlderState, match="has schema_version 1, and app app upgrades it to 2 when it starts"):
        await propose_patch(app, settings, bench.cluster, [line], "why", print)
    line = b'{"key": "k0", "expected": {"n": 6, "sum": 300}, "value": {"n": 6, "sum": 3}}'
    (patch,) = await propose_patch(bench.app, settings, bench.cluster, [line], "why", print)
    await carry_out(patch)
    async with bench.live(app) as one:
        assert one.view()["k0"] == 300
    line = b'{"key": "k0", "expected": 300, "value": 30000}'
    (patch,) = await propose_patch(app, settings, bench.cluster, [line], "why", print)
    await carry_out(patch)
    async with bench.live(app) as one:
        assert one.view() == folded(120)


class BeforeTheUpgrade(RealService):
    """The service of a real harness that has not upgraded the state yet."""

    def __init__(self, bench):
        self.service = SimpleNamespace(app=second(bench), settings=bench.settings())
        super().__init__(cast("Any", None))

    async def _start(self):
        return cast("Any", self.service)


async def test_a_real_harness_reads_a_state_that_is_to_be_upgraded(bench, monkeypatch):
    """As it was written: reading writes nothing."""
    await bench.past()
    monkeypatch.setattr(real_service, "KafkaCluster", lambda _: bench.cluster)
    answer = await BeforeTheUpgrade(bench).answer(Request(Ask.READ, 30.0))
    assert isinstance(answer, Answered), answer
    store = bench.app.new_store()
    load_slices(store, answer.slices, answer.stream_time_ms)
    assert {key: account["sum"] * 100 for key, account in store.view.items()} == folded(120)


async def test_a_finding_is_not_accepted_by_a_version_that_upgrades_first(bench):
    """The version that wrote the state accepts it; then the newer one upgrades."""
    await bench.past()
    app, settings = second(bench), bench.settings()
    await bench.feed(20)
    bench.trim(bench.input, 130)
    with pytest.raises(OlderState):
        await propose_acceptance(app, settings, bench.cluster, 0, "input-gap-0", "why")
    status = await bench.failure()
    await accepted(bench, status.error.hint)
    async with bench.live(app) as one:
        await one.position(140)


async def test_a_store_without_an_upgrade_is_read_before_anything_is_written(bench):
    """Afterwards no version could read it; as it is, the old one continues."""
    await bench.past()
    app = second(bench)
    app.upgrades = {(1, "elsewhere"): app.upgrades[1, "default"]._replace(store="elsewhere", keys=KeyCodec(str))}
    status = await bench.failure(app)
    assert status.error.kind == StoredValueUnreadable.__name__
    await bench.restored()
