"""Maps whose entries expire: what touches an entry, and that the agenda follows the entries through every batch."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapreplay.errors import UsageError
from snapreplay.state.map import MapState
from snapreplay.state.stamp import bare, stamped, touched_at
from snapreplay.state.steps import all_of
from snapreplay.state.store import store_of
from snapreplay.state.timetable import Event, Kind
from snapreplay.state.values import StoredValueUnreadable
from tests.snapreplay.state.test_agenda import first_of

TTL = 100


def expiring(refresh="write", value_type=int):
    return MapState(str, value_type, default=value_type, ttl_ms=TTL, refresh=refresh)


def at(state, now_ms):
    store_of(state).stream_time_ms = now_ms
    return state


def commit(store):
    all_of(store.staging())
    sealed = all_of(store.sealing())
    store.merge()
    return sealed


def dues(store):
    """Every entry's time, by the agenda."""
    found, up_to = {}, 1 << 40
    while due := first_of(store.agenda, up_to):
        at_ms, key = due
        found[key] = at_ms
        store.agenda.load(key, at_ms, None)
    for key, at_ms in found.items():
        store.agenda.load(key, None, at_ms)
    return found


def stored(store):
    return {k: v for index in range(store.shard_count) for k, v in store._shards.entries(index)}


TOUCHES: dict[str, Any] = {
    "read": lambda state: state["a"],
    "write": lambda state: state.__setitem__("a", 1),
    "setdefault": lambda state: state.setdefault("a", 5),
}
LOOKS: dict[str, Any] = {
    "in": lambda state: "a" in state,
    "iterate": lambda state: dict(state.items()) and list(state),
    "len": len,
}


@pytest.mark.parametrize("refresh", ["write", "read"])
@pytest.mark.parametrize("what", [*TOUCHES, *LOOKS, "get"], ids=[*TOUCHES, *LOOKS, "get"])
def test_what_touches_an_entry(what, refresh):
    """Item access, assignment and setdefault do, even if nothing changes; `get` only where that was chosen."""
    state = expiring(refresh)
    store = store_of(state)
    at(state, 5)["a"] = 1
    commit(store)
    at(state, 9)
    {**TOUCHES, **LOOKS, "get": lambda state: state.get("a")}[what](state)
    touched = what in TOUCHES or (what == "get" and refresh == "read")
    assert list(dues(store).values()) == [109 if touched else 105]
    changes = commit(store).changes
    assert bool(any(changes.values())) == touched
    assert list(dues(store).values()) == [109 if touched else 105]
    assert [touched_at(value) for value in stored(store).values()] == [9 if touched else 5]


def test_a_deleted_entry_is_not_due_and_an_expired_one_is_deleted():
    """Both are the same tombstone."""
    state = expiring()
    store: Any = store_of(state)
    at(state, 1)["a"] = 1
    state["b"] = 2
    commit(store)
    del state["a"]
    store.expire(next(iter(k for k in dues(store))))
    assert dict(state.items()) == {}
    assert dues(store) == {}
    (entries,) = commit(store).changes.values()
    assert set(entries.values()) == {None}


def test_a_map_that_gets_a_ttl_later_keeps_its_entries_until_they_are_touched():
    """They have no stamp, so nobody knows when they were touched: nothing is lost."""
    plain, state = MapState(str, int), expiring()
    plain["a"], plain["b"] = 1, 2
    commit(store_of(plain))
    entries = stored(store_of(plain))
    store = store_of(state)
    store.apply_changes({"default": entries})
    assert dict(state.items()) == {"a": 1, "b": 2}
    assert dues(store) == {}
    store.rollback()
    assert at(state, 7)["a"] == 1
    commit(store)
    assert list(dues(store).values()) == [107]


def test_a_map_that_loses_its_ttl_reads_its_entries():
    """Stamps are passed over, by handlers and by views, and go when an entry is written again."""
    state, plain = expiring(), MapState(str, int)
    at(state, 3)["a"] = 7
    commit(store_of(state))
    store = store_of(plain)
    store.apply_changes({"default": stored(store_of(state))})
    assert (plain["a"], store.committed_view()["a"]) == (7, 7)
    assert sum(store.checking()) == 1
    plain["a"] = 8
    commit(store)
    assert [touched_at(value) for value in stored(store).values()] == [None]


def test_a_changed_ttl_counts_from_the_stored_touch():
    """The stamp is the touch, not the end."""
    short, long = expiring(), MapState(str, int, ttl_ms=1000)
    at(short, 3)["a"] = 7
    commit(store_of(short))
    store_of(long).apply_changes({"default": stored(store_of(short))})
    assert list(dues(store_of(long)).values()) == [1003]


@pytest.mark.parametrize("value", [b"\x01", b"\xc0", b"\x81\xa1a\x02"])
def test_a_stamp_goes_before_any_value(value):
    """And it is found again."""
    assert (touched_at(stamped(-1, value)), bare(stamped(-1, value))) == (-1, value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"ttl_ms": 0},
        {"ttl_ms": True},
        {"ttl_ms": 1.5},
        {"ttl_ms": 1 << 62},
        {"refresh": "read"},
        {"ttl_ms": 5, "refresh": "never"},
    ],
)
def test_a_ttl_that_cannot_work_is_refused(arguments):
    """When the map is made."""
    with pytest.raises(UsageError, match=r"MapState: (ttl_ms|refresh)="):
        MapState(str, int, **arguments)


def test_a_class_of_ones_own_cannot_have_a_ttl():
    """Its entries would never expire: only our own classes tell the store of each touch."""

    class Mine(MapState[str, int]):
        pass

    with pytest.raises(UsageError, match="MapState: ttl_ms= in a subclass, Mine"):
        Mine(str, int, ttl_ms=5)
    assert Mine(str, int)._store.timetable is None


def test_an_entry_whose_key_has_another_type_now_is_named_when_it_expires():
    """A sample of the entries may have missed it."""
    before, after = at(expiring(), 1), MapState(int, int, ttl_ms=TTL)
    before["old"] = 1
    changes = commit(store_of(before)).changes
    store_of(after).apply_changes(changes)
    timetable = store_of(after).timetable
    assert timetable is not None
    with pytest.raises(StoredValueUnreadable, match="the stored key 'old' is not of type int"):
        timetable.expire(Event(1, Kind.EXPIRY, "default", *changes["default"]))


KEYS = st.sampled_from("abc")
ACTS = st.one_of(
    st.tuples(st.sampled_from(["read", "write", "get", "delete"]), KEYS),
    st.integers(0, 30),
    st.sampled_from(["rollback", "stage", "seal", "merge", "drop", "restart"]),
)


@given(st.lists(ACTS, max_size=50), st.sampled_from(["write", "read"]))
@settings(max_examples=300)
def test_the_agenda_is_what_the_entries_say(acts, refresh):
    """After any batches, undone or not, each entry is due a ttl after the touch that would be stored now."""
    state, now = expiring(refresh), 0
    for act in acts:
        if isinstance(act, int):
            now += act
        elif isinstance(act, tuple):
            what, key = act
            ACCESS[what](state, key)
        elif act == "restart":
            state = restarted(state, refresh)
        else:
            live(store_of(state), act)
        at(state, now)
    store = store_of(state)
    if store.is_sealed:
        store.merge()
    expected = dues(store)
    commit(store)
    found = {k: (touched_at(v) or 0) + TTL for k, v in stored(store).items()}
    assert found == expected == dues(store)


ACCESS = {
    "read": lambda state, key: state[key],
    "write": lambda state, key: state.__setitem__(key, 3),
    "get": lambda state, key: state.get(key),
    "delete": lambda state, key: state.pop(key, None),
}


def restarted(state, refresh):
    """From a snapshot of what is committed."""
    store = store_of(state)
    store.drop()
    again = expiring(refresh)
    store_of(again).load(all_of(store.mark().slicing(1 << 20)))
    return again


def live(store, act):
    """A step of a batch's life, where it may come."""
    if act == "seal" and not store.is_sealed:
        all_of(store.staging())
        all_of(store.sealing())
    elif act == "stage":
        all_of(store.staging())
    elif act in ("rollback", "drop") or (act == "merge" and store.is_sealed):
        getattr(store, act)()
