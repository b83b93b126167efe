"""Maps whose entries expire: what touches an entry, and that the agenda follows the entries through every batch."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from snapreplay.errors import UsageError
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from snapreplay.state.stores import store_of
from snapreplay.state.timers import Event, Kind
from snapreplay.state.values import StoredValueUnreadable, bare, touched_at
from tests.snapreplay.state.test_agenda import first_of
from tests.support.batches import commit, seal

TTL = 100


def expiring(refresh="write", value_type=int):
    return MapState(str, value_type, default=value_type, ttl_ms=TTL, refresh=refresh)


def at(state, now_ms):
    state.__snapreplay_store__().clock.stream_time_ms = now_ms
    return state


def dues(store):
    """Every entry's time, by the agenda."""
    found, up_to = {}, 1 << 40
    while due := first_of(store.agenda, up_to):
        at_ms, key = due
        assert key not in found
        found[key] = at_ms
        store.agenda.load(key, at_ms, None)
    for key, at_ms in found.items():
        store.agenda.load(key, None, at_ms)
    return found


def stored(store):
    return {k: v for index in range(store.shard_count) for k, v in store.shards.entries(index)}


def test_a_map_that_loses_its_ttl_reads_its_entries():
    """Stamps are passed over, by handlers and by views, and go when an entry is written again."""
    state, plain = expiring(), MapState(str, int)
    at(state, 3)["a"] = 7
    commit(state.__snapreplay_store__())
    store = plain.__snapreplay_store__()
    store.apply_changes({"default": stored(state.__snapreplay_store__())})
    assert (plain["a"], store.committed_view()["a"]) == (7, 7)
    assert sum(store.checking()) == 1
    plain["a"] = 8
    commit(store)
    assert [touched_at(value) for value in stored(store).values()] == [None]


def test_a_changed_ttl_counts_from_the_stored_touch():
    """The stamp is the touch, not the end."""
    short, long = expiring(), MapState(str, int, ttl_ms=1000)
    at(short, 3)["a"] = 7
    commit(short.__snapreplay_store__())
    long.__snapreplay_store__().apply_changes({"default": stored(short.__snapreplay_store__())})
    assert list(dues(long.__snapreplay_store__()).values()) == [1003]


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
    assert store_of(Mine(str, int)).timetable is None


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


KEYS = st.sampled_from("abcd")
NUMBERS = st.integers(0, 3)
ACTS = st.one_of(
    st.tuples(st.sampled_from(["read", "write", "setdefault", "get", "delete", "expire"]), KEYS, NUMBERS),
    st.tuples(st.sampled_from(["ranging", "changing", "deleting", "looking"]), st.none(), NUMBERS),
    st.integers(0, 3000),
    st.sampled_from(["rollback", "stage", "seal", "merge", "drop", "restart"]),
)
Touched = dict[str, tuple[list[int], int | None]]


class Model:
    """Key → value and time of the last touch. Each layer of a batch is a whole copy."""

    def __init__(self, unstamped: dict[str, int], *, keeps_read: bool):
        self.committed: Touched = {key: ([n], None) for key, n in unstamped.items()}
        self.sealed: Touched | None = None
        self.staged, self.live = copy.deepcopy(self.committed), copy.deepcopy(self.committed)
        self.keeps_read = keeps_read
        self.now = 0

    def read(self, key, _number):
        self.live[key] = (self.live.get(key, ([],))[0], self.now)

    def write(self, key, number):
        self.live[key] = ([number], self.now)

    def setdefault(self, key, number):
        self.live[key] = (self.live.get(key, ([number],))[0], self.now)

    def get(self, key, number):
        if self.keeps_read and key in self.live:
            self.read(key, number)

    def delete(self, key, _number):
        self.live.pop(key, None)

    expire = delete

    def ranging(self, _key, _number):
        """Touches nothing."""

    looking = ranging

    def changing(self, _key, number):
        for value, _ in self.live.values():
            value.append(number)

    def deleting(self, _key, _number):
        self.live = {}

    def rollback(self):
        self.live = copy.deepcopy(self.staged)

    def stage(self):
        self.staged = copy.deepcopy(self.live)

    def seal(self):
        if self.sealed is None:
            self.stage()
            self.sealed = copy.deepcopy(self.live)

    def merge(self):
        if self.sealed is not None:
            self.committed, self.sealed = self.sealed, None

    def drop(self):
        self.staged, self.live = copy.deepcopy(self.committed), copy.deepcopy(self.committed)
        self.sealed = None

    restart = drop


def expire(state, key, _number):
    store: Any = state.__snapreplay_store__()
    if key in state:
        store.expire(msgspec.msgpack.encode(key))


def ranging(state, _key, _number):
    assert dict(state.range()) == dict(state.items())


def changing(state, _key, number):
    """A change in place does not count as a touch."""
    for _, value in state.range(reverse=True):
        value.append(number)


def deleting(state, _key, _number):
    for key, _ in state.range():
        del state[key]


def looking(state, _key, number):
    assert ([number] in state.values()) == ([number] in list(state.values()))
    assert all(entry in state.items() for entry in state.items())
    assert state == dict(state.items())
    assert {key for key in "abcd" if key in state} == set(state)


ACCESS = {
    "read": lambda state, key, _: state[key],
    "write": lambda state, key, number: state.__setitem__(key, [number]),
    "setdefault": lambda state, key, number: state.setdefault(key, [number]),
    "get": lambda state, key, _: state.get(key),
    "delete": lambda state, key, _: state.pop(key, None),
    "expire": expire,
    "ranging": ranging,
    "changing": changing,
    "deleting": deleting,
    "looking": looking,
}


@given(st.lists(ACTS, max_size=50), st.sampled_from(["write", "read"]), st.dictionaries(KEYS, NUMBERS))
@example([("write", "a", 1), "stage", 2000, ("read", "a", 0)], "write", {"b": 1})
@example([("write", "a", 1), 5, ("get", "a", 0)], "write", {})
@example([("write", "a", 1), 5, ("get", "a", 0)], "read", {})
@example([("write", "a", 1), 5, ("setdefault", "a", 0), 5, ("looking", None, 1), "stage"], "read", {})
@example(
    [("write", "a", 1), "seal", "merge", 5, ("write", "a", 2), "seal", ("write", "b", 1), "stage", "drop"], "write", {}
)
@settings(max_examples=100)
def test_an_entry_is_due_a_ttl_after_its_last_touch(acts, refresh, unstamped):
    """Values, stamps, agenda and index agree with a model, in any course of entries and batches, and however they
    are read."""
    model = Model(unstamped, keeps_read=refresh == "read")
    state = ordered(refresh)
    encode = msgspec.msgpack.encode
    entries = {encode(key): encode([number]) for key, number in unstamped.items()}
    state.__snapreplay_store__().apply_changes({"default": entries})
    for act in acts:
        if isinstance(act, int):
            model.now += act
        elif isinstance(act, tuple):
            what, *arguments = act
            ACCESS[what](at(state, model.now), *arguments)
            getattr(model, what)(*arguments)
        else:
            state = restarted(state, refresh) if act == "restart" else live(state, act)
            getattr(model, act)()
        agrees(state, model)
    for act in ("merge", "seal", "merge"):
        live(state, act)
        getattr(model, act)()
    agrees(state, model)
    assert model.committed == {
        msgspec.msgpack.decode(key): (msgspec.msgpack.decode(bare(value)), touched_at(value))
        for key, value in stored(state.__snapreplay_store__()).items()
    }


def agrees(state, model):
    store: Any = state.__snapreplay_store__()
    committed = sorted((key, value) for key, (value, _) in model.committed.items())
    assert list(store.committed_view().range()) == committed
    assert list(state) == sorted(model.live)
    assert len(state) == len(model.live)
    due = {key: ms + TTL for key, (_, ms) in model.live.items() if ms is not None}
    assert {msgspec.msgpack.decode(k): ms for k, ms in dues(store).items()} == due
    if not store.live:  # else looking at the values would change what comes next
        assert dict(state.range()) == {key: value for key, (value, _) in model.live.items()}
        store.rollback()


def ordered(refresh):
    """The values may be changed in place."""
    return MapState(str, list[int], default=list, ttl_ms=TTL, refresh=refresh, ordered=True)


def restarted(state, refresh):
    """Restart from a snapshot of what is committed."""
    store = state.__snapreplay_store__()
    store.drop()
    again = ordered(refresh)
    cursor = store.shards.mark()
    again.__snapreplay_store__().load(all_of(cursor.slicing(1 << 20)))
    return again


def live(state, act):
    """A step of a batch's life, where it may come."""
    store = state.__snapreplay_store__()
    if act == "seal" and not store.is_sealed:
        seal(store)
    elif act == "stage":
        all_of(store.staging())
    elif act in ("rollback", "drop") or (act == "merge" and store.is_sealed):
        getattr(store, act)()
    return state
