"""Code that does not know a stored field: told by name, before the first record, and nothing is lost."""

import enum

import msgspec
import pytest

from snapreplay.app.app import App
from snapreplay.app.topic import Topic
from snapreplay.state.fields import Layout
from snapreplay.state.map import MapState
from tests.support.in_memory import InMemory, virtual


class V1(msgspec.Struct):
    n: int = 0


class V2(msgspec.Struct):
    n: int = 0
    email: str = ""


class Renamed(msgspec.Struct):
    n: int = 0
    mail: str = ""


class KeptName(msgspec.Struct):
    n: int = 0
    mail: str = msgspec.field(default="", name="email")


payments = Topic("payments-fields")
balances = Topic("balances-fields")


def app_of(account, **options):
    app = App(
        "fields",
        inputs=[payments],
        outputs=[balances],
        state=lambda: MapState(str, account, default=account, **options),
    )

    @app.handler(payments)
    def on_payment(record, state, out):
        if record.value.get("nothing"):
            return
        entry = state[record.key]
        entry.n += 1
        for name in ("email", "mail"):
            if record.value.get(name) and hasattr(entry, name):
                setattr(entry, name, record.value[name])

    return app


@pytest.fixture
def bench():
    """A log of its own for each test."""
    return InMemory()


async def run(bench, app, *records):
    """One process with this code, up to the end of the input; the state that it leaves."""
    await bench.send(records)
    async with bench.live(app) as one:
        await one.position(bench.log(bench.input).end)
        return {key: msgspec.to_builtins(value) for key, value in one.view().items()}


OLD, NEW = app_of(V1), app_of(V2)
FIRST = ("ada", {"email": "a@b"})


@virtual
async def test_a_field_of_a_later_version_is_never_dropped(bench):
    """Rolled back, the old code says so before the first record, and the later version continues where it was."""
    await bench.prepare(OLD)
    await run(bench, OLD, ("eve", {}))
    await run(bench, NEW, FIRST)
    await bench.send([("ada", {})])
    status = await bench.failure(OLD)
    assert (status.error.kind, status.batch) == ("UnknownFields", None)
    assert "'email'" in status.error.message
    assert (await run(bench, NEW))["ada"] == {"n": 2, "email": "a@b"}


@virtual
async def test_a_renamed_field_does_not_begin_at_its_default(bench):
    """Refused; with its stored name kept, as the hint says, the value is there."""
    await bench.prepare(NEW)
    await run(bench, NEW, FIRST)
    status = await bench.failure(app_of(Renamed))
    assert 'msgspec.field(name="email")' in status.error.hint
    assert (await run(bench, app_of(KeptName)))["ada"]["email"] == "a@b"


@virtual
async def test_a_removed_field_is_declared_and_remembered(bench):
    """Refused until it is declared; then code that has it again is refused, too, until it says that it knows."""
    await bench.prepare(NEW)
    await run(bench, NEW, FIRST)
    assert 'dropped=("email",)' in (await bench.failure(OLD)).error.hint
    assert (await run(bench, app_of(V1, dropped=("email",)), ("ada", {})))["ada"] == {"n": 2}
    assert (await run(bench, OLD, ("ada", {})))["ada"] == {"n": 3}
    status = await bench.failure(NEW)
    assert "may lack 'email'" in status.error.message
    again = app_of(V2, dropped=("email",))
    assert (await run(bench, again, ("ada", {})))["ada"] == {"n": 4, "email": ""}
    assert (await run(bench, NEW, FIRST))["ada"] == {"n": 5, "email": "a@b"}


class Kind(enum.Enum):
    FIXED = 1
    GONE = 2


class LaterKind(enum.Enum):
    FIXED = 1


class Limit(msgspec.Struct, omit_defaults=True):
    n: int = 0
    cents: int = 100
    kind: Kind = Kind.FIXED


class Raised(msgspec.Struct, omit_defaults=True):
    n: int = 0
    cents: int = 200
    kind: LaterKind = LaterKind.FIXED


def layout_of(cents, **kinds):
    return {"default": Layout(absent={"cents": cents, "kind": "1", "n": "0"}, members={"kind": kinds})}


@virtual
async def test_a_value_never_gets_another_meaning(bench):
    """Refused before the first record, and the version before continues. Upgraded from the type that was stored, each
    entry keeps what it was."""
    old, new = app_of(Limit), app_of(Raised)
    await bench.prepare(old)
    await run(bench, old, ("ada", {}))
    assert bench.batches()[-1].layouts == layout_of("100", **{"1": ["FIXED"], "2": ["GONE"]})
    status = await bench.failure(new)
    assert (status.error.kind, status.batch) == ("MeaningChanged", None)
    assert "may lack 'cents', which meant 100" in status.error.message
    await run(bench, old, ("ada", {}))
    new.schema_version = 2
    new.upgrade(1, Raised)(lambda key, value: (key, value))
    assert (await bench.failure(new)).error.kind == "MeaningChanged", "the type that was not stored"
    new.upgrades.clear()
    new.upgrade(1, Limit)(lambda key, value: (key, Raised(value.n, value.cents)))
    async with bench.live(new) as one:
        assert one.view()["ada"] == Raised(2, 100)
    assert bench.batches()[-1].layouts == layout_of("200", **{"1": ["FIXED"]})


@virtual
async def test_the_layout_is_written_with_the_word_of_the_hint(bench):
    """The new default is right for what was written without the field: said once, it counts from then on."""
    await bench.prepare(app_of(Limit))
    await run(bench, app_of(Limit), ("ada", {}))
    hint = (await bench.failure(app_of(Raised))).error.hint
    assert '`MapState(…, dropped=("cents",))`' in hint
    await run(bench, app_of(Raised, dropped=("cents",)), ("ada", {}))
    async with bench.live(app_of(Raised)) as one:
        assert one.view()["ada"].cents == 200
    assert (await bench.failure(app_of(Limit))).error.kind == "MeaningChanged"
