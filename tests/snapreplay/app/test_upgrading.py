"""Upgrades of stored entries: what becomes of keys, values, touches and timers, and every mistake by its name."""

from typing import Any

import msgspec
import pytest

from snapreplay import App, MapState, Stores, Topic, UsageError
from snapreplay.app.upgrade import UpgradeFailed, upgrading
from snapreplay.state.steps import all_of

IN = Topic("in")


class V1(msgspec.Struct):
    euros: float


class V2(msgspec.Struct):
    cents: int


class V3(msgspec.Struct):
    cents: int
    currency: str


def app(state, schema_version=1, timers=False):
    made: App[Any] = App("app", inputs=[IN], state=state, schema_version=schema_version)
    made.handler(IN)(lambda record, state, out: None)
    if timers:
        made.timer("ring")(lambda timer, state, out: None)
    return made


def of(old_app, *writes):
    """Make the store of the old app, and do these writes at these times."""
    store = old_app.new_store()
    for at_ms, write in writes:
        store.stream_time_ms = at_ms
        store.begin()
        write(store.view)
        all_of(store.staging())
        all_of(store.sealing())
        store.merge()
    return store


def upgraded(new_app, store, from_schema=1):
    """Load the state into a store of the new app, and upgrade it there."""
    new_app.validate()
    made = new_app.new_store(shards=store.shard_count)
    for name, entries in store.stored():
        made.apply_changes({name: entries})
    made.stream_time_ms = store.stream_time_ms
    before = made.digest
    try:
        all_of(upgrading(new_app.upgrades.values(), from_schema, made))
    except UpgradeFailed:
        assert made.digest == before
        raise
    assert sum(made.checking()) == made.digest.count
    assert made.stream_time_ms == store.stream_time_ms
    return made


def stores_v1(count=3):
    """Make a map of V1 by str keys."""
    return of(
        app(lambda: MapState(str, V1)), (0, lambda state: state.update({f"k{i}": V1(float(i)) for i in range(count)}))
    )


def v2(function, key=None, state=lambda: MapState(str, V2)):
    made = app(state, 2)
    made.upgrade(1, V1, key=key)(function)
    return made


@pytest.mark.parametrize("count", [0, 1, 3, 2000])
def test_each_value_becomes_one_of_the_new_type(count):
    """In blocks, and with the digest of a state that was written so."""
    store = upgraded(v2(lambda key, old: (key, V2(int(old.euros * 100)))), stores_v1(count))
    assert dict(store.view) == {f"k{i}": V2(i * 100) for i in range(count)}
    by_hand = of(v2(lambda key, old: None), (0, lambda state: state.update(dict(store.view))))
    assert store.digest == by_hand.digest


def test_an_entry_becomes_none_or_several():
    """By a generator, a list or nothing; under other keys."""

    def halves(key, old):
        if old.euros == 1:
            return
        yield f"{key}/a", V2(int(old.euros * 50))
        yield f"{key}/b", V2(int(old.euros * 50))

    store = upgraded(v2(halves), stores_v1())
    assert dict(store.view) == {"k0/a": V2(0), "k0/b": V2(0), "k2/a": V2(100), "k2/b": V2(100)}
    assert dict(upgraded(v2(lambda key, old: None), stores_v1()).view) == {}


def test_keys_change_their_type():
    """The old type is declared, because the present store has another one."""
    new = v2(lambda key, old: ((key[0], int(key[1:])), V2(1)), key=str, state=lambda: MapState(tuple[str, int], V2))
    assert sorted(upgraded(new, stores_v1()).view) == [("k", 0), ("k", 1), ("k", 2)]


def test_several_versions_are_upgraded_one_after_the_other():
    """From whichever version the state has."""
    new = app(lambda: MapState(str, V3), 3)
    new.upgrade(1, V1)(lambda key, old: (key, V2(int(old.euros * 100))))
    new.upgrade(2, V2)(lambda key, old: (key, V3(old.cents, "EUR")))
    assert upgraded(new, stores_v1()).view["k2"] == V3(200, "EUR")
    between = upgraded(v2(lambda key, old: (key, V2(7))), stores_v1())
    assert upgraded(new, between, 2).view["k2"] == V3(7, "EUR")


def old_shop(*writes):
    """Make two stores with an entry of each time, a timer of each key, and nothing in the third."""

    def write(key, at_ms):
        def writes(state):
            state.a[key] = state.b[key] = at_ms
            state.b.schedule(key, 10_000 + at_ms, timer="ring")

        return at_ms, writes

    def stores():
        return Stores(a=MapState(str, int, ttl_ms=1000), b=MapState(str, int), c=MapState(str, int))

    return of(app(stores, timers=True), write("x", 1), write("y", 2), *writes)


def new_shop(**others):
    def state():
        stores = {name: make() for name, make in others.items()}
        return Stores(a=MapState(str, int, ttl_ms=1000), **stores, retired=() if "b" in others else ("b",))

    return app(state, 2, timers=True)


def test_entries_move_between_stores_and_other_stores_stay_as_they_are():
    """What no upgrade is for is not even decoded."""
    new = new_shop(d=lambda: MapState(str, str))
    new.upgrade(1, int, key=str, store="b")(lambda key, old: ("d", key, str(old)))
    store = upgraded(new, old_shop())
    assert dict(store.view.a) == {"x": 1, "y": 2}
    assert dict(store.view.d) == {"x": "1", "y": "2"}


def test_touches_and_timers_come_along():
    """An entry expires when it would have; a timer follows the first entry that its own becomes, or goes with it."""

    def split(key, old):
        return [("a", f"{key}{n}", old) for n in (1, 2)] if key == "x" else None

    def renamed(key, old):
        return [("b", f"{key}{n}", old) for n in (1, 2)] if key == "x" else []

    new = new_shop(b=lambda: MapState(str, int))
    new.upgrade(1, int, store="a")(split)
    new.upgrade(1, int, store="b")(renamed)
    store = upgraded(new, old_shop())
    assert store.maps["a"].agenda.next_ms == 1001  # a look at the entries would touch them
    assert dict(store.view.a) == {"x1": 1, "x2": 1}
    assert store.view.b.scheduled("x1", timer="ring") == 10_001
    assert [store.view.b.scheduled(key, timer="ring") for key in ("x", "x2", "y")] == [None, None, None]


def test_a_timer_of_a_key_without_an_entry_stays():
    """No entry tells where it should go."""
    new = new_shop(b=lambda: MapState(str, int))
    new.upgrade(1, int, store="b")(lambda key, old: None)
    store = upgraded(new, old_shop((3, lambda state: state.b.pop("x"))))
    assert [store.view.b.scheduled(key, timer="ring") for key in ("x", "y")] == [10_001, None]


def fails(key, old):
    if key == "k1":
        raise ValueError("no such rate")
    return key, V2(0)


async def awaits(key, old):
    return key, V2(0)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (fails, r"state\['k1'\] cannot be upgraded: fails \(test_upgrading.py:\d+\) raised ValueError: no such rate"),
        (lambda key, old: ("same", V2(0)), r"it becomes state\['same'\], as another entry does"),
        (lambda key, old: (key, V1(0.0)), "would not read back as .*V2'>: Object missing required field `cents`"),
        (lambda key, old: (1, V2(0)), "is of type int, but the keys of this map are str"),
        (lambda key, old: V2(0), "TypeError"),
        (lambda key, old: [V2(0)], r"made V2\(cents=0\) of it, which is not an entry"),
        (lambda key, old: ("nowhere", key, V2(0)), "becomes an entry of store 'nowhere'; the state has default"),
        (lambda key, old: (key, V2(0), V2(0), 1), "which is not an entry"),
    ],
)
def test_what_cannot_be_upgraded_is_named_and_nothing_was_changed(function, why):
    """With its key, its function and the line of it."""
    with pytest.raises(UpgradeFailed, match=why) as failed:
        upgraded(v2(function), stores_v1())
    assert failed.value.message.endswith("Nothing was changed")


def test_the_same_key_twice_is_found_across_blocks():
    """Also where thousands of entries lie between them."""
    with pytest.raises(UpgradeFailed, match=r"it becomes state\['k1'\], as another entry does"):
        upgraded(v2(lambda key, old: (key if key != "k1999" else "k1", V2(0))), stores_v1(2000))


def test_stored_values_must_have_the_declared_type():
    """The old type is a claim about what is stored."""
    new = app(lambda: MapState(str, V2), 2)
    new.upgrade(1, V2)(lambda key, old: (key, old))
    with pytest.raises(UpgradeFailed, match="is not stored as the upgrade from schema_version 1 says"):
        upgraded(new, stores_v1())


def test_wrong_declarations_are_refused_at_once():
    """Before any state is touched."""
    new = app(lambda: MapState(str, V2), 2)
    with pytest.raises(UsageError, match=r"from_schema=2\) leads nowhere: the app has schema_version 2"):
        new.upgrade(2, V1)
    with pytest.raises(UsageError, match="not an integer"):
        new.upgrade(0, V1)
    app(lambda: MapState(str, V2), 3).upgrade(2, V1)
    with pytest.raises(UsageError, match="cannot be called with"):
        new.upgrade(1, V1)(lambda key: None)
    with pytest.raises(UsageError, match="use def"):
        new.upgrade(1, V1)(awaits)
    new.upgrade(1, V1)(fails)
    with pytest.raises(UsageError, match="two upgrades from schema_version 1"):
        new.upgrade(1, V1)(fails)
    lost = app(lambda: Stores(one=MapState(str, V2), retired=("gone",)), 2)
    lost.upgrade(1, V1, store="gone")(fails)
    with pytest.raises(UsageError, match="the type of its keys is not known"):
        lost.validate()
    lost.upgrades.clear()
    lost.upgrade(1, V1, key=str, store="gone")(fails)
    lost.validate()
    lost.upgrade(1, V1, key=str, store="oen")(fails)
    with pytest.raises(UsageError, match="for store 'oen', which the state neither has nor retires; it has one"):
        lost.validate()


def test_an_entry_that_moves_onto_one_of_another_store_is_refused_whichever_comes_first():
    """The store that is moved into may have no upgrade of its own."""
    for source, target in (("a", "b"), ("b", "a")):
        new = new_shop(b=lambda: MapState(str, int))
        new.upgrade(1, int, store=source)(lambda key, old, target=target: (target, key, old))
        with pytest.raises(
            UpgradeFailed, match=r"an entry of another store becomes the same one|as another entry does"
        ):
            upgraded(new, old_shop())


@pytest.mark.parametrize("first", ["a", "b"])
def test_timers_follow_the_first_entry_whichever_others_become(first):
    """Also if another key of the same block becomes entries of both stores the other way round."""
    other = "b" if first == "a" else "a"

    def both(key, old):
        order = (first, other) if key == "x" else (other, first)
        return [(store, f"{key}1", old) for store in order]

    new = new_shop(b=lambda: MapState(str, int))
    new.upgrade(1, int, store="a")(lambda key, old: None)
    new.upgrade(1, int, store="b")(both)
    store = upgraded(new, old_shop())
    state = store.view
    assert getattr(state, first).scheduled("x1", timer="ring") == 10_001
    assert getattr(state, other).scheduled("x1", timer="ring") is None
    assert getattr(state, other).scheduled("y1", timer="ring") == 10_002


def test_a_timer_does_not_take_the_place_of_another_one():
    """One of a key without an entry stays where it is."""
    gone = (3, lambda state: state.b.pop("x"))
    new = new_shop(b=lambda: MapState(str, int))
    new.upgrade(1, int, store="b")(lambda key, old: ("x", old))
    with pytest.raises(
        UpgradeFailed, match=r"its timer 'ring' would be that of state.b\['x'\], where one is set already"
    ):
        upgraded(new, old_shop(gone))


class Raising(msgspec.Struct):
    euros: float

    def __post_init__(self):
        raise RuntimeError("not today")


def test_any_error_names_the_entry():
    """By the old type, or by a key that cannot be one."""
    new = app(lambda: MapState(str, V2), 2)
    new.upgrade(1, Raising)(lambda key, old: (key, V2(0)))
    with pytest.raises(UpgradeFailed, match=r"state\['k\d'\] cannot be upgraded: is not stored .*: not today"):
        upgraded(new, stores_v1())
    with pytest.raises(UpgradeFailed, match=r"state\['k\d'\] cannot be upgraded: .*unhashable type"):
        upgraded(v2(lambda key, old: ([key], V2(0))), stores_v1())


def test_each_version_on_the_way_needs_its_upgrade():
    """An upgrade from 1 leads to 2; nothing leads from there."""
    new = app(lambda: MapState(str, V3), 4)
    new.upgrade(1, V1)(lambda key, old: (key, V2(1)))
    new.upgrade(3, V2)(lambda key, old: (key, V3(old.cents, "EUR")))
    assert new.upgrades_from(1) == frozenset()
    assert new.upgrades_from(3) == {"default"}
    new.upgrade(2, V2)(lambda key, old: (key, old))
    assert new.upgrades_from(1) == {"default"}


def test_large_values_are_upgraded_in_small_steps():
    """A block ends where its bytes are many."""
    entries = {f"k{i}": "x" * 100_000 for i in range(20)}
    old = of(app(lambda: MapState(str, str)), (0, lambda state: state.update(entries)))
    sizes: list[int] = []

    def shorter(key, value):
        sizes.append(len(value))
        return key, value[:10]

    new = app(lambda: MapState(str, str), 2)
    new.upgrade(1, str)(shorter)
    made = new.new_store(shards=1)
    for name, part in old.stored():
        made.apply_changes({name: part})
    most, steps = 0, upgrading(new.upgrades.values(), 1, made)
    for _ in steps:
        most, sizes[:] = max(most, len(sizes)), []
    assert 0 < most <= 4


def counting():
    """Its number of calls is in what it makes."""
    calls = iter(range(10**9))
    return lambda key, old: (key, V2(next(calls)))


def running_total():
    """What came before an entry is in what it makes."""
    total = [0]

    def upgrade(key, old):
        total[0] += 1
        return key, V2(total[0] if key in ("k0", "k1") else 1)

    return upgrade


def once():
    """An entry that it has met becomes nothing."""
    seen = set()

    def upgrade(key, old):
        if key in seen:
            return None
        seen.add(key)
        return key, V2(1)

    return upgrade


def alternating():
    """The second of three calls makes something else."""
    calls: dict[str, int] = {}

    def upgrade(key, old):
        calls[key] = calls.get(key, 0) + 1
        return key, V2(calls[key] % 2)

    return upgrade


@pytest.mark.parametrize("count", [3, 12_000])
@pytest.mark.parametrize("make", [counting, running_total, once, alternating])
def test_an_upgrade_that_is_another_one_at_each_call_is_refused(make, count):
    """Before anything is written: its result must depend on the entry alone. Of many entries some are called again."""
    with pytest.raises(UpgradeFailed, match="it becomes something else each time: ") as failed:
        upgraded(v2(make()), stores_v1(count))
    assert "Nothing was changed" in failed.value.message
    assert "depend on the entry alone" in failed.value.hint
