"""Upgrades of stored entries to another `schema_version`: declared by an app, carried out on a whole state in steps.
Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

from msgspec.msgpack import decode

from snapreplay.app.code_version import place_of
from snapreplay.errors import RecordError, StopError, UsageError, described
from snapreplay.interrupts import of_a_signal
from snapreplay.state.composite import Store
from snapreplay.state.contract import RESERVED, TIMERS_STORE, ShardSlice
from snapreplay.state.digest import DEFAULT_STORE, adding_up
from snapreplay.state.fields import StoreFields
from snapreplay.state.keys import KeyCodec, stored_key
from snapreplay.state.scheduled import ExpiringStore
from snapreplay.state.steps import Steps
from snapreplay.state.stores import maps_of
from snapreplay.state.timers import TimerKey
from snapreplay.state.values import ValueCodec, bare, stamped, touched_at

OK = TypeVar("OK")
OV = TypeVar("OV")
Entry = tuple[Any, Any] | tuple[str, Any, Any]
UpgradeFunction = Callable[[OK, OV], Entry | Iterable[Entry] | None]
"""Makes the entries that an old entry becomes."""


class DeclaredUpgrade(NamedTuple):
    """A declared upgrade of one store. `keys`: codec of the stored keys; None: that of the present store."""

    from_schema: int
    store: str
    keys: KeyCodec[Any] | None
    values: ValueCodec[Any]
    function: UpgradeFunction[Any, Any]


def check_upgrade_function(function: Callable[..., object]) -> None:
    """Raise UsageError if it could not be called with an old key and an old value."""
    if not callable(function):
        raise UsageError(f"upgrade {function!r} is not callable")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"upgrade {place_of(function)} is async", hint="use def: all that it needs is in the entry")
    try:
        inspect.signature(function).bind(None, None)
    except (TypeError, ValueError) as error:
        raise UsageError(f"upgrade {place_of(function)} cannot be called with (key, value): {error}") from error


def check_leads_on(app_id: str, from_schema: int, schema_version: int) -> None:
    """Raise UsageError if the app's schema_version is not a later one."""
    if from_schema >= schema_version:
        raise UsageError(
            f"{app_id}: @app.upgrade(from_schema={from_schema}) leads nowhere: the app has schema_version"
            f" {schema_version}",
            hint=f"raise it: `App(…, schema_version={from_schema + 1})`",
        )


def check_upgrades(app_id: str, upgrades: Collection[DeclaredUpgrade], state: object) -> None:
    """Raise UsageError if the state cannot be upgraded so: it has no such store."""
    known = {name or DEFAULT_STORE for name in maps_of(state)}
    retired = set(getattr(state, "retired", ())) | {DEFAULT_STORE}
    for each in upgrades:
        if each.keys is not None and each.store not in known | retired:
            raise UsageError(
                f"{app_id}: upgrade {place_of(each.function)} is for store {each.store!r}, which the state"
                f" neither has nor retires; it has {', '.join(sorted(known))}",
                hint=f"correct the name; or declare that the state had it: `Stores(…, retired=({each.store!r},))`",
            )
        if each.keys is None and each.store not in known:
            raise UsageError(
                f"{app_id}: upgrade {place_of(each.function)} is for store {each.store}, which the state does"
                " not have any more, so the type of its keys is not known",
                hint=f"say it: `@app.upgrade({each.from_schema}, …, key=str, store={each.store!r})`",
            )


def upgraded_stores(places: Collection[tuple[int, str]], from_schema: int, schema_version: int) -> frozenset[str]:
    """Return the stores whose entries are upgraded if they were written with `from_schema`; empty: an upgrade on the
    way to the app's `schema_version` is missing. `places`: the schema_version and store that each is from."""
    numbers = {number for number, _ in places}
    if not numbers.issuperset(range(from_schema, schema_version)):
        return frozenset()
    return frozenset(store for number, store in places if from_schema <= number < schema_version)


def fields_read(
    declared: Mapping[str, StoreFields], upgrades: Mapping[tuple[int, str], StoreFields], from_schema: int
) -> dict[str, StoreFields]:
    """Return the fields, by store, that an app reads in a state of `from_schema`: those of the first upgrade of a
    store, or those that are declared."""
    older = {
        store: upgrades[number, store] for number, store in sorted(upgrades, reverse=True) if number >= from_schema
    }
    return {**declared, **older}


BLOCK = 512
"""The number of entries upgraded in one step. The user's function may need more time."""
BLOCK_BYTES = 256 * 1024
"""The stored bytes of one step, as far as entries are as large as those before them."""
FIRST_BLOCK = 4
AGAIN_MAX = 10_000
"""Entries that are upgraded once before all others and once more after them, in the opposite order."""


_Place = tuple[str, bytes]
"""A store, and an encoded key in it."""


_Made = list[tuple[str, bytes, bytes | None]]
"""The entries that one became: store, encoded key, encoded value."""


class _Stored(NamedTuple):
    store: str
    key: bytes
    value: bytes


class UpgradeFailed(StopError):
    """The stored entries cannot be upgraded.

    Safe: The state is unchanged: nothing is written before every entry is upgraded. The version that wrote it may be
    started again.
    """


class _Item(NamedTuple):
    """An entry between two steps of an upgrade.

    Attributes:
        origin: its place when it was stored, encoded.
        touched_ms: as in its stamp.
    """

    store: str
    key: Any
    value: Any
    origin: _Place
    touched_ms: int | None


def upgrading(upgrades: Iterable[DeclaredUpgrade], from_schema: int, store: Store) -> Steps[None]:
    """Make the entries of `store`, which were written with `from_schema`, those of the app's schema_version.

    Entries of stores that no upgrade is for stay as they are stored. An entry keeps the time of its last touch, and its
    timers are set for the first entry that it becomes; if it becomes none, they are gone with it.

    Raises:
        UpgradeFailed: names the store, the key and the reason.
        StoredValueUnreadable, UnknownStore, UnknownTimer: a store without an upgrade cannot be read, or a timer has no
            handler. Here, too, the entries are as they were.
    """
    slices = yield from _UpgradeRun(upgrades, from_schema, store).upgraded_slices()
    before = [entries for _, entries in store.stored()]
    stream_time_ms = store.stream_time_ms
    store.clear(store.shard_count)
    store.stream_time_ms = stream_time_ms
    for name, part in slices:
        store.load([part], name)
        if before:
            before.pop()  # freeing all of them at once takes a tenth of a second per million
        yield
    yield from store.indexing()


class _UpgradeRun:
    """One upgrade of a whole state."""

    def __init__(self, upgrades: Iterable[DeclaredUpgrade], from_schema: int, store: Store) -> None:
        by_schema: dict[int, dict[str, DeclaredUpgrade]] = {}
        for each in upgrades:
            by_schema.setdefault(each.from_schema, {})[each.store] = each
        self._steps = [by_schema[number] for number in sorted(by_schema) if number >= from_schema]
        self._store = store
        self._shards: dict[str, list[dict[bytes, bytes]]] = {}
        self._mask = store.shard_count - 1
        self._timers = _Timers()

    def upgraded_slices(self) -> Steps[list[tuple[str, ShardSlice]]]:
        """Return the entries of the new state, by store."""
        yield from self._check_others()
        yield from self._timers.reading(self._store)
        sampled = yield from self._sampled()
        before = yield from self._made_of(sampled)
        sizes: dict[str, int] = {}
        for name, entries in self._store.stored():
            first = self._first_step(name)
            if first is None and name != TIMERS_STORE:
                twice = self._add(name, entries, stay=True)
                if twice is not None:
                    raise _failed((name, twice), "an entry of another store becomes the same one")
                yield
            elif first is not None:
                for block in _blocks(entries, sizes, name):
                    yield from self._block(name, first, block)
        sampled.reverse()
        self._compare(sampled, before, (yield from self._made_of(sampled)))
        for block in _blocks((yield from self._timers.moved())):
            self._add(TIMERS_STORE, dict(block))
            yield
        slices = []
        for name, shards in self._shards.items():
            for index, entries in enumerate(shards):
                if entries:
                    sums = yield from adding_up(entries.items())
                    slices.append((name, ShardSlice(index, sums.a, sums.b, entries)))
        return slices

    def _check_others(self) -> Steps[None]:
        """Read the stores without an upgrade as their present types. This comes first, because no older version can
        continue after the upgrade is written."""
        upgraded = {name for step in self._steps for name in step}
        self._store.refuse_unknown(upgraded)
        yield from self._store.refusing_pending()
        for name, store in self._store.maps.items():
            if name not in upgraded and not name.startswith("_"):
                for _ in store.checking():
                    yield

    def _first_step(self, name: str) -> int | None:
        """Return the number of the first upgrade of a store."""
        return next((number for number, step in enumerate(self._steps) if name in step), None)

    def _sampled(self) -> Steps[list[_Stored]]:
        """Choose entries from all over the state: all of them if they are few."""
        upgraded = [(name, entries) for name, entries in self._store.stored() if self._first_step(name) is not None]
        every = 1 + sum(len(entries) for _, entries in upgraded) // AGAIN_MAX
        sampled: list[_Stored] = []
        for number, (name, entries) in enumerate(upgraded):
            sampled += (_Stored(name, *each) for each in islice(entries.items(), number % every, None, every))
            yield
        return sampled

    def _made_of(self, sampled: Sequence[_Stored]) -> Steps[dict[_Place, _Made]]:
        """Upgrade these entries, one after the other, and keep nothing. What fails here fails again, and is named."""
        found: dict[_Place, _Made] = {}
        for number, (name, key, value) in enumerate(sampled):
            if number % BLOCK == 0:
                yield
            first = self._first_step(name)
            if first is None:
                raise AssertionError("only entries with an upgrade are sampled")
            items: Iterable[_Item] = _decoded(self._steps[first][name], self._store, [(key, value)])
            for step in self._steps[first:]:
                items = _through(step, items)
            made: _Made = []
            for item in items:
                target = self._store.maps.get(item.store)
                try:
                    encoded = {} if target is None else (yield from target.encoding({item.key: item.value}))
                except (RecordError, TypeError):
                    continue
                made += ((item.store, *each) for each in encoded.items())
            found[name, key] = made
        return found

    def _compare(
        self, sampled: Sequence[_Stored], before: Mapping[_Place, _Made], after: Mapping[_Place, _Made]
    ) -> None:
        """Raise UpgradeFailed if an entry became something else before, together with all others, or after them."""
        for name, key, _ in sampled:
            first, last = before[name, key], after[name, key]
            if first == last and all(self._has(*each) for each in last):
                continue
            between = [] if first != last else [(store, key, self._stored(store, key)) for store, key, _ in last]
            raise _failed(
                (name, key),
                f"it becomes something else each time: {_listed(first)}, then {_listed(between or last)}",
                "let the result depend on the entry alone, not on a clock, a random number, or the entries before it;"
                " try it on all partitions with `snapreplay upgrade APP --dry-run`, and start this version again. Until"
                " then the old version can keep this partition",
            )

    def _has(self, store: str, key: bytes, value: bytes | None) -> bool:
        return bare(self._stored(store, key) or b"") == bare(value or b"")

    def _stored(self, store: str, key: bytes) -> bytes | None:
        """Return a value of the new state."""
        shards = self._shards.get(store)
        return None if shards is None else shards[crc32(key) & self._mask].get(key)

    def _block(self, name: str, first: int, block: Sequence[tuple[bytes, bytes]]) -> Steps[None]:
        if self._timers:
            self._timers.visit(name, (key for key, _ in block))
        items: Iterable[_Item] = _decoded(self._steps[first][name], self._store, block)
        for step in self._steps[first:]:
            items = _through(step, items)
        stores: dict[str, dict[Any, _Item]] = {}
        for item in items:
            try:
                twin = stores.setdefault(item.store, {}).setdefault(item.key, item)
            except TypeError as error:
                raise _failed(item.origin, f"it becomes {_named(item.store, item.key)}: {error}") from error
            if twin is not item:
                raise _failed(item.origin, f"it becomes {_named(item.store, item.key)}, as another entry does")
            self._timers.follow(item)
        yield
        for store, found in stores.items():
            yield from self._encode(store, found)

    def _encode(self, store: str, found: Mapping[Any, _Item]) -> Steps[None]:
        target = self._store.maps.get(store)
        origin = next(iter(found.values())).origin
        if target is None or store in RESERVED:
            known = ", ".join(name for name in self._store.maps if not name.startswith("_"))
            raise _failed(origin, f"it becomes an entry of store {store!r}; the state has {known}")
        try:
            encoded = yield from target.encoding({key: item.value for key, item in found.items()})
        except RecordError as error:
            key = error.facts.get("key")
            raise _failed(found[key].origin if key in found else origin, error.message, error.hint) from error
        expires = isinstance(target, ExpiringStore)
        entries: dict[bytes, bytes] = {}
        for item, (key, value) in zip(found.values(), encoded.items(), strict=True):
            entries[key] = stamped(item.touched_ms, value) if expires and item.touched_ms is not None else value
            self._timers.arrive(item, key)
        twice = self._add(store, entries)
        if twice is not None:
            item = found[target.decode_key(twice)]
            raise _failed(item.origin, f"it becomes {_named(store, item.key)}, as another entry does")

    def _add(self, name: str, entries: Mapping[bytes, bytes], *, stay: bool = False) -> bytes | None:
        """Add all entries. If a key is there already, add none and return it. `stay`: all are of one old shard, and
        have their old keys."""
        shards = self._shards.get(name)
        if shards is None:
            shards = self._shards[name] = [{} for _ in range(self._mask + 1)]
        if stay and entries:
            shard = shards[crc32(next(iter(entries))) & self._mask]
            if shard.keys().isdisjoint(entries):
                shard.update(entries)
                return None
        places = [shards[crc32(key) & self._mask] for key in entries]
        for key, shard in zip(entries, places, strict=True):
            if key in shard:
                return key
        for (key, value), shard in zip(entries.items(), places, strict=True):
            shard[key] = value
        return None


class _Timers:
    """Pending timers of the old state, and where they go."""

    def __init__(self) -> None:
        self._at: dict[_Place, dict[str, bytes]] = {}
        self._first: dict[_Place, _Item | None] = {}
        self._now: dict[_Place, _Place] = {}

    def reading(self, old: Store) -> Steps[None]:
        for name, entries in old.stored():
            for block in _blocks(entries) if name == TIMERS_STORE else ():
                for key, value in block:
                    timer = TimerKey.decoded(key)
                    self._at.setdefault((timer.store, timer.key), {})[timer.name] = value
                yield

    def __bool__(self) -> bool:
        return bool(self._at)

    def visit(self, store: str, keys: Iterable[bytes]) -> None:
        """Note that these entries are upgraded: the timers of an entry that becomes none are deleted with it."""
        self._first.update(dict.fromkeys(self._at.keys() & {(store, key) for key in keys}))

    def follow(self, item: _Item) -> None:
        """Note what an entry becomes; the first one counts."""
        if self._first.get(item.origin, item) is None:
            self._first[item.origin] = item

    def arrive(self, item: _Item, key: bytes) -> None:
        """Note where an item is stored."""
        if self._first.get(item.origin) is item:
            self._now[item.origin] = (item.store, key)

    def moved(self) -> Steps[dict[bytes, bytes]]:
        """Return the timers of the new state; those of keys without an entry stay.

        Raises:
            UpgradeFailed: two timers would be the same one.
        """
        found: dict[bytes, bytes] = {}
        for number, (origin, timers) in enumerate(self._at.items()):
            if number % BLOCK == 0:
                yield
            if origin in self._first and origin not in self._now:
                continue
            store, key = self._now.get(origin, origin)
            for name, at in timers.items():
                if found.setdefault(TimerKey(store, name, key).encoded(), at) is not at:
                    place = _named(store, stored_key(key))
                    raise _failed(origin, f"its timer {name!r} would be that of {place}, where one is set already")
        return found


def _blocks(
    entries: Mapping[bytes, bytes], sizes: dict[str, int] | None = None, store: str = ""
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Divide entries into what one step handles: few, or few bytes. `sizes`: by store, of the next block; a shard goes
    on with that of the shard before."""
    sizes = {} if sizes is None else sizes
    left, size = iter(entries.items()), sizes.get(store, FIRST_BLOCK)
    while block := list(islice(left, size)):
        yield block
        mean_bytes = sum(map(len, map(itemgetter(1), block))) // len(block) + 1
        size = sizes[store] = max(1, min(BLOCK, 8 * size, BLOCK_BYTES // mean_bytes))


def _decoded(upgrade: DeclaredUpgrade, new: Store, block: Sequence[tuple[bytes, bytes]]) -> list[_Item]:
    name = upgrade.store
    unpack_key = upgrade.keys.unpack if upgrade.keys is not None else new.maps[name].decode_key
    unpack, items = upgrade.values.unpack, []
    for key, value in block:
        try:
            items.append(_Item(name, unpack_key(key), unpack(bare(value)), (name, key), touched_at(value)))
        except BaseException as error:  # the user's type may raise anything
            if of_a_signal(error):
                raise
            what = f"is not stored as the upgrade from schema_version {upgrade.from_schema} says: {error}"
            raise _failed((name, key), what, "declare the types that the old version stored") from error
    return items


def _through(step: Mapping[str, DeclaredUpgrade], items: Iterable[_Item]) -> Iterator[_Item]:
    for item in items:
        upgrade = step.get(item.store)
        if upgrade is None:
            yield item
            continue
        try:
            made = upgrade.function(item.key, item.value)
            entries = [made] if isinstance(made, tuple) else [] if made is None else list(made)
        except BaseException as error:  # the user's function may raise anything
            if of_a_signal(error):
                raise
            said = f"{place_of(upgrade.function)} raised {described(error)}"
            raise _failed(item.origin, said) from error
        for entry in entries:
            if not isinstance(entry, tuple) or len(entry) not in (2, 3):
                what = f"{place_of(upgrade.function)} made {entry!r:.80} of it, which is not an entry"
                raise _failed(item.origin, what, "return or yield (key, value), or (store, key, value)")
            yield item._replace(store=entry[0] if len(entry) == 3 else item.store, key=entry[-2], value=entry[-1])


def _listed(made: _Made) -> str:
    if not made:
        return "nothing"
    shown = ((store, key, value) for store, key, value in made[:3])
    return ", ".join(
        f"{_named(store, stored_key(key))} = {'nothing' if value is None else repr(decode(bare(value)))[:80]}"
        for store, key, value in shown
    )


def _named(store: str, key: object) -> str:
    return f"{'state' if store == 'default' else f'state.{store}'}[{key!r:.200}]"


def _failed(origin: _Place, what: str, hint: str = "") -> UpgradeFailed:
    store, key = origin
    return UpgradeFailed(
        f"{_named(store, stored_key(key))} cannot be upgraded: {what}. Nothing was changed",
        hint=hint
        or "correct the upgrade, try it on all partitions with `snapreplay upgrade APP --dry-run`, and start this"
        " version again; until then the old version can keep this partition",
        store=store,
        key=key.hex(),
    )
