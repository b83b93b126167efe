"""An app: which topics it reads and writes, what its state is, and one handler per input."""

from __future__ import annotations

import functools
import inspect
import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar, Unpack, overload

import msgpack
import msgspec

from snapreplay.app.call import AsyncCall, CallFunction
from snapreplay.app.code_version import code_version, place_of
from snapreplay.app.codecs import Codec, json, utf8
from snapreplay.app.names import SAVEPOINT, broadcast_input
from snapreplay.app.out import Out
from snapreplay.app.record import Record
from snapreplay.app.tables import PairHandler, StreamJoin, Table, of_tables, with_table
from snapreplay.app.timer import TimerHandler, TimerSpec, check_period
from snapreplay.app.topic import BroadcastTopic, InternalTopic, Topic, TopicPattern, all_of, check_topics, declaration
from snapreplay.app.upgrade import (
    DeclaredUpgrade,
    UpgradeFunction,
    check_leads_on,
    check_upgrade_function,
    check_upgrades,
    fields_read,
    upgraded_stores,
)
from snapreplay.app.windowed import Sessions, WindowHandler, Windows, check_durations, in_place_of
from snapreplay.errors import UsageError, described, line_of
from snapreplay.state.composite import Store
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.fields import StoreFields, check_dropped
from snapreplay.state.keys import KeyCodec
from snapreplay.state.map import MapState
from snapreplay.state.shards import SHARD_COUNT
from snapreplay.state.stores import fields_of, maps_of, store_of
from snapreplay.state.values import ValueCodec

K = TypeVar("K")
V = TypeVar("V")
Q = TypeVar("Q")
S = TypeVar("S")
A = TypeVar("A")
L = TypeVar("L")
R = TypeVar("R")
OK = TypeVar("OK", bound=Any)
OV = TypeVar("OV")

Handler = Callable[[Record[K, V], S, Out], None]

APP_ID_MAX = 200
"""Characters; with our longest suffix it is still a legal topic name."""

SHARDS_OF_A_TEST = 16
"""A look at each of a service's 1,024 takes longer than all of a test's few entries."""

_LEGAL_TIMER = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LEGAL_APP_ID = re.compile(rf"[A-Za-z0-9._-]{{1,{APP_ID_MAX}}}")


class _OfStreams(TypedDict):
    """The options of a join of two topics, for the overloads of `App.join`."""

    name: str
    within_ms: int
    grace_ms: int
    stores: tuple[str, str]
    late: NotRequired[tuple[Topic[Any, Any] | None, Topic[Any, Any] | None]]


class App(Generic[S]):
    """An app: its topics, its state and its handlers. Each partition has its own state, made by `state`.

    Attributes:
        app_id: the names of the app's topics, consumer group and transactional ids begin with it. Never change it.
        inputs: topics with the same number of partitions, or patterns of topic names, in the order given.
        outputs: topics that handlers may send to, in the order given; may be empty. Internal topics, made with
            `topic`, are inputs and outputs without being listed.
        state: returns the empty state of a partition: a `MapState` or `Stores`.
        handlers: input topic to its handler.
        timers: name to what was declared with `timer`.
        calls: name to what was declared with `call`.
        upgrades: what was declared with `upgrade`, by `from_schema` and store.
        schema_version: version of the stored values; a state with another version is upgraded, or refused.
    """

    def __init__(
        self,
        app_id: str,
        *,
        inputs: Sequence[Topic[Any, Any]],
        state: Callable[[], S],
        outputs: Sequence[Topic[Any, Any]] = (),
        version: str | None = None,
        schema_version: int = 1,
    ) -> None:
        """Declare an app.

        Args:
            version: a name for people, recorded in front of the code's own version.

        Raises:
            UsageError: Kafka would not accept the id or a topic, or a topic is named twice or as
                both input and output, or `state` cannot be called.
        """
        self.app_id = app_id
        self.inputs = all_of(app_id, "inputs", inputs)
        self.outputs = all_of(app_id, "outputs", outputs)
        self.state = state
        self.schema_version = schema_version
        self.handlers: dict[Topic[Any, Any], Handler[Any, Any, S]] = {}
        self.timers: dict[str, TimerSpec] = {}
        self.calls: dict[str, AsyncCall[Any, Any, Any]] = {}
        self.upgrades: dict[tuple[int, str], DeclaredUpgrade] = {}
        self._joined: list[Callable[..., None]] = []
        self._kept: list[Table[Any, Any] | Windows[Any, Any, S] | Sessions[Any, Any, S] | StreamJoin] = []
        self._version = version
        self._made_in = str(sys._getframe(1).f_globals.get("__name__", ""))  # noqa: SLF001 - CPython's, and public by its documentation
        _check_app_id(app_id)
        check_topics(app_id, self.inputs, self.outputs)
        _check_state(self)
        _check_versions(version, schema_version)

    @functools.cached_property
    def version(self) -> str:
        """The version of the app, "code:" and 8 hex digits that change with the code, see `code_version`. If a version
        was given, it stands in front: "7+code:0a1b2c3d". Increments and snapshots record it."""
        handlers = [self.handlers[topic] for topic in self.inputs if topic in self.handlers]
        timers = [self.timers[name].function for name in sorted(self.timers)]
        upgrades = [self.upgrades[place].function for place in sorted(self.upgrades)]
        code = code_version([*handlers, *timers, *upgrades, *self._joined, self.state], [self._made_in])
        return code if self._version is None else f"{self._version}+{code}"

    @property
    def input_names(self) -> tuple[str, ...]:
        """The inputs that are declared by their names, in the order given."""
        return tuple(topic.name for topic in self.inputs if not isinstance(topic, TopicPattern))

    @property
    def internal_names(self) -> tuple[str, ...]:
        """The topics that were made with `topic`, in the order made."""
        return tuple(topic.name for topic in self.inputs if isinstance(topic, InternalTopic))

    @property
    def broadcast_names(self) -> tuple[str, ...]:
        """The topics of broadcast tables, in the order given. Their inputs are their partitions."""
        return tuple(topic.name for topic in self.inputs if isinstance(topic, BroadcastTopic))

    @property
    def broadcast_stores(self) -> frozenset[str]:
        """The stores that broadcast tables fill: they are the same in every partition."""
        return frozenset(each.store for each in self._kept if isinstance(each, Table) and each.is_broadcast)

    @property
    def patterns(self) -> tuple[TopicPattern[Any, Any], ...]:
        """The inputs that stand for several: those declared by `Topic.matching`, and topics of broadcast tables."""
        return tuple(topic for topic in self.inputs if isinstance(topic, TopicPattern))

    def declaration(self, name: str) -> Topic[Any, Any] | None:
        """Return the input, or the first pattern, that a topic of this name belongs to; None: it is no input."""
        return declaration(self.inputs, name)

    def input_named(self, name: str) -> Topic[Any, Any] | None:
        """Return the input, or the topic of a broadcast table, of this name; None: there is none, and no pattern
        matches."""
        found = self.declaration(self.input_of(name, 0))
        return found.named(name) if isinstance(found, TopicPattern) else found

    def input_of(self, topic: str, partition: int) -> str:
        """Return the name of the input that a partition of this topic is: "rates/2" of a broadcast table, else that of
        the topic."""
        return broadcast_input(topic, partition) if topic in self.broadcast_names else topic

    def is_table(self, name: str) -> bool:
        """Say whether this topic or input is a table."""
        found = self.declaration(self.input_of(name, 0))
        return found is not None and isinstance(self.handlers.get(found), Table)

    @functools.cached_property
    def stored_fields(self) -> Mapping[str, StoreFields]:
        """The fields that stored values have, by store. UsageError: the factory does not return a state."""
        return fields_of(self.state())

    def handler(self, topic: Topic[K, V]) -> Callable[[Handler[K, V, S]], Handler[K, V, S]]:
        """Decorate the function that is called with (record, state, out) for each record of `topic`.

        Its effect must depend only on its arguments: no clock, no random numbers except `record.random`, no data
        outside the state. A replay calls it again.

        Raises:
            UsageError: the topic is not an input or already has a handler, or the function is
                async, a generator, or not callable with three arguments.
        """
        if getattr(topic, "name", None) in self.broadcast_names:
            raise UsageError(
                f"{self.app_id}: {topic!r} is a broadcast table, whose records have no other handler",
                hint="every partition would handle each of them: read the store in the handlers of other inputs",
            )
        if topic not in self.inputs:
            raise UsageError(
                f"{self.app_id}: {topic!r} is not one of the app's inputs",
                hint=f"use the same Topic object as inputs=[…]: {', '.join(t.name for t in self.inputs)}",
            )

        def register(function: Handler[K, V, S]) -> Handler[K, V, S]:
            if topic in self.handlers:
                raise UsageError(
                    f"{self.app_id}: input {topic.name} has two handlers,"
                    f" {place_of(self.handlers[topic])} and {place_of(function)}"
                )
            check_handler(function)
            self.__dict__.pop("version", None)
            self.handlers[topic] = function
            return function

        return register

    @overload
    def topic(self, name: str) -> Topic[str, Any]: ...
    @overload
    def topic(self, name: str, *, key: Codec[K]) -> Topic[K, Any]: ...
    @overload
    def topic(self, name: str, *, value: Codec[V]) -> Topic[str, V]: ...
    @overload
    def topic(self, name: str, *, key: Codec[K], value: Codec[V]) -> Topic[K, V]: ...
    def topic(self, name: str, *, key: Any = utf8, value: Any = None) -> Topic[Any, Any]:
        """Make an internal topic, which is both an output and an input of the app. Handlers send records to it under
        another key, and the partition of that key processes them.

        In Kafka it is `<app_id>-internal-<name>`, with as many partitions as the other inputs; `topics ensure`
        creates it. Kafka's hash of the key (murmur2) chooses the partition.

        Raises:
            UsageError: the name is taken or not legal, or a codec is not one.
        """
        made: Topic[Any, Any] = InternalTopic(self.app_id, name, key=key, value=value)
        inputs, outputs = (*self.inputs, made), (*self.outputs, made)
        check_topics(self.app_id, inputs, outputs)
        self.__dict__.pop("version", None)
        self.inputs, self.outputs = inputs, outputs
        return made

    def call(
        self,
        *,
        name: str | None = None,
        key: Codec[Any] = utf8,
        request: Codec[Any] | None = None,
        result: Codec[Any] | None = None,
        timeout_ms: int = 30_000,
        retries: int | None = 5,
        concurrency: int = 16,
        ordered: bool = False,
    ) -> Callable[[CallFunction[K, Q, R]], AsyncCall[K, Q, R]]:
        """Decorate an async function (call) that uses another system, such as an HTTP service or a database.

        `out.call(geocode, key, request)` requests it. It runs after the commit, in the owner of the partition, at
        least once, and never in a replay. Its result or its last error arrives exactly once, in the same partition,
        as a record for `@geocode.handler`.

        Args:
            name: by default the name of the function. Pending calls are stored with it, so do not change it.
            key, request, result: codecs; `utf8` and `json()` if not given.
            timeout_ms: of one attempt.
            retries: attempts after the first one; None: repeat until one succeeds or raises `CallRefused`.
            concurrency: maximum number of attempts at once in a process.
            ordered: make the calls of one key one after the other, in the order requested.

        Raises:
            UsageError: the function is not async, the name is taken or not legal, or an option cannot work.
        """

        def register(function: CallFunction[K, Q, R]) -> AsyncCall[K, Q, R]:
            made = AsyncCall[K, Q, R](
                self,
                function,
                name=name,
                key=key,
                request=json() if request is None else request,
                result=json() if result is None else result,
                timeout_ms=timeout_ms,
                retries=retries,
                concurrency=concurrency,
                ordered=ordered,
            )
            self.calls[made.name] = made
            return made

        return register

    def timer(self, name: str, *, every_ms: int | None = None) -> Callable[[TimerHandler[S]], TimerHandler[S]]:
        """Decorate the function that is called with (timer, state, out) when a timer fires, by stream time.

        `@app.timer("reminder")` is for timers that handlers set with `MapState.schedule`. With `every_ms` the timer
        is periodic: it fires when stream time reaches a multiple of the period, once if it passes several.

        Raises:
            UsageError: the name is taken or not legal, or `every_ms` is no period, or the function cannot be called.
        """
        if callable(name):
            raise UsageError(
                f"{self.app_id}: @app.timer without a name registers nothing: {place_of(name)}",
                hint='name it, `@app.timer("reminder")`, or with a period, `@app.timer("report", every_ms=60_000)`',
            )
        if not isinstance(name, str) or not _LEGAL_TIMER.fullmatch(name):
            raise UsageError(
                f"{self.app_id}: {name!r} cannot be the name of a timer",
                hint='use letters, digits, "_", "." or "-": `@app.timer("reminder")`',
            )
        check_period(every_ms)

        def register(function: TimerHandler[S]) -> TimerHandler[S]:
            check_handler(function, "(timer, state, out)")
            if name in self.timers:
                raise UsageError(
                    f"{self.app_id}: timer {name} has two handlers,"
                    f" {place_of(self.timers[name].function)} and {place_of(function)}"
                )
            self.__dict__.pop("version", None)
            self.timers[name] = TimerSpec(function, every_ms)
            return function

        return register

    def _closing(self, name: str, function: TimerHandler[S], store: str) -> None:
        self.timer(name)(function)
        self.timers[name] = self.timers[name]._replace(closes_in=store)

    def table(self, topic: Topic[K, V | None], *, store: str = DEFAULT_STORE, broadcast: bool = False) -> Table[K, V]:
        """Keep the newest value of each key of an input in a store. The input has no handler; every handler may read
        the store. A null value deletes its key.

        Args:
            topic: the input: compacted, or with unlimited retention; its values may be null.
            store: has the key and value types of the topic; "default" if the state is one map.
            broadcast: each partition of the app reads all partitions of the topic, and has the whole table.

        Raises:
            UsageError: as `handler`, or the values of the topic cannot be null, or it cannot be broadcast.
        """
        made: Table[K, V] = Table(topic, store, is_broadcast=broadcast)
        self.handler(topic)(made)
        if broadcast:
            whole = BroadcastTopic(topic)
            self.inputs = tuple(whole if each is topic else each for each in self.inputs)
            self.handlers[whole] = self.handlers.pop(topic)
        self._kept.append(made)
        return made

    def window(
        self,
        name: str,
        *,
        size_ms: int,
        grace_ms: int,
        every_ms: int | None = None,
        store: str = DEFAULT_STORE,
        late: Topic[Any, Any] | None = None,
    ) -> Callable[[WindowHandler[K, A, S]], Windows[K, A, S]]:
        """Decorate the function that is called with (closed, state, out) when a window closes: `grace_ms` after its
        end, by stream time. Then the entry of the window is deleted. Handlers add records with `Windows.of`.

        Args:
            name: name of the windows and their timers, and in the metric of late records.
            size_ms: length of a window.
            every_ms: windows begin at its multiples. None: `size_ms` (tumbling windows). Less than `size_ms`: hopping
                windows.
            store: has keys (key, start of the window), and the aggregates as values.
            late: an output for records that come too late for one of their windows.

        Raises:
            UsageError: as `timer`, or a duration that cannot work, or `late` is no output.
        """
        check_durations(0, grace_ms=grace_ms)
        check_durations(size_ms=size_ms, every_ms=size_ms if every_ms is None else every_ms)
        if every_ms is not None and every_ms > size_ms:  # there would be gaps
            raise UsageError(f"{self.app_id}: window {name}: every_ms={every_ms} is more than size_ms={size_ms}")
        self._check_late(name, late)

        def register(closed: WindowHandler[K, A, S]) -> Windows[K, A, S]:
            check_handler(closed, "(closed, state, out)")
            made = Windows(name, grace_ms, store, late, closed, size_ms, every_ms or size_ms)
            self._closing(name, in_place_of(closed, made.close), store)
            self._kept.append(made)
            return made

        return register

    def session(
        self,
        name: str,
        *,
        gap_ms: int,
        grace_ms: int,
        merge: Callable[[Any, Any], Any],
        store: str = DEFAULT_STORE,
        late: Topic[Any, Any] | None = None,
    ) -> Callable[[WindowHandler[K, A, S]], Sessions[K, A, S]]:
        """Decorate the function that is called with (closed, state, out) when a session closes, as in `window`. The
        session of a key ends after `gap_ms` without a record. Handlers add records with `Sessions.of`.

        Args:
            merge: called with the aggregates of two sessions that a record connects, earlier one first; returns the
                merged one.
            store: as in `window`, but ordered.

        Raises:
            UsageError: as `window`.
        """
        check_durations(gap_ms=gap_ms)
        check_durations(0, grace_ms=grace_ms)
        self._check_late(name, late)

        def register(closed: WindowHandler[K, A, S]) -> Sessions[K, A, S]:
            check_handler(closed, "(closed, state, out)")
            made = Sessions(name, grace_ms, store, late, closed, gap_ms, merge)
            self._closing(name, in_place_of(closed, made.close), store)
            self._kept.append(made)
            return made

        return register

    @overload
    def join(
        self, left: Topic[K, L], right: Table[K, R], *, how: Literal["inner"] = "inner"
    ) -> Callable[[PairHandler[K, L, R, S]], PairHandler[K, L, R, S]]: ...
    @overload
    def join(
        self, left: Topic[K, L], right: Table[K, R], *, how: Literal["left"]
    ) -> Callable[[PairHandler[K, L, R | None, S]], PairHandler[K, L, R | None, S]]: ...
    @overload
    def join(
        self, left: Table[K, L], right: Table[K, R], *, how: Literal["inner", "left"] = "inner"
    ) -> Callable[[PairHandler[K, L | None, R | None, S]], PairHandler[K, L | None, R | None, S]]: ...
    @overload
    def join(
        self, left: Topic[K, L], right: Topic[K, R], *, how: Literal["inner"] = "inner", **options: Unpack[_OfStreams]
    ) -> Callable[[PairHandler[K, L, R, S]], PairHandler[K, L, R, S]]: ...
    @overload
    def join(
        self, left: Topic[K, L], right: Topic[K, R], *, how: Literal["left"], **options: Unpack[_OfStreams]
    ) -> Callable[[PairHandler[K, L, R | None, S]], PairHandler[K, L, R | None, S]]: ...
    def join(
        self,
        left: Any,
        right: Any,
        *,
        how: Literal["inner", "left"] = "inner",
        name: str | None = None,
        within_ms: int = 0,
        grace_ms: int = 0,
        stores: tuple[str, str] = ("", ""),
        late: tuple[Topic[Any, Any] | None, Topic[Any, Any] | None] = (None, None),
    ) -> Callable[[PairHandler[Any, Any, Any, S]], PairHandler[Any, Any, Any, S]]:
        """Decorate the function that is called with (pair, state, out) for values of the same key on both sides. The
        joined topics have no handlers.

        Topic and table: for each record of the topic, with the current value in the table. Two tables: for each
        change of a key on either side; a deleted side is None. Two topics: for each pair of records whose
        timestamps differ by at most `within_ms`.

        Args:
            how: "left": also for values without a match on the right; then `Pair.right` is None. For two topics, this
                call is made when no match is possible any more.
            name: for two topics: name of the join and its timers, and in the metric of late records.
            grace_ms: for two topics: a record that is further behind stream time is late and matches nothing.
            stores: for two topics: an ordered store for the values of each side, with keys (key, timestamp, offset).
            late: for two topics: an output for the late records of each side.

        Raises:
            UsageError: as `handler` and `timer`, or an argument that cannot work.
        """
        if how not in ("inner", "left"):
            raise UsageError(f'{self.app_id}: how={how!r} is neither "inner" nor "left"')
        is_left = how == "left"
        if not isinstance(late, tuple) or len(late) != 2:
            raise UsageError(
                f"{self.app_id}: late={late!r} of join {name} is not an output for each of the two sides",
                hint="pass `late=(left, right)`; None: that side has none",
            )
        for each in late:
            self._check_late(f"join {name}", each)
        of_streams = {
            "name": name,
            "within_ms": within_ms,
            "grace_ms": grace_ms,
            "stores": any(stores),
            "late": any(late),
        }
        if isinstance(right, Table) and (given := [option for option, value in of_streams.items() if value]):
            raise UsageError(
                f"{self.app_id}: {', '.join(given)}: only a join of two topics takes them, and {right!r} is a table",
                hint="a row of a table is joined until it changes, and no record is late: leave them out",
            )

        def register(function: PairHandler[Any, Any, Any, S]) -> PairHandler[Any, Any, Any, S]:
            check_handler(function, "(pair, state, out)")
            if isinstance(left, Table) and isinstance(right, Table):
                of_tables(function, left, right, is_left=is_left)
                self.__dict__.pop("version", None)
                self._joined.append(function)
            elif isinstance(right, Table):
                self.handler(left)(in_place_of(function, with_table(function, right, is_left=is_left)))
            elif isinstance(left, Table) or name is None:
                raise UsageError(
                    f"{self.app_id}: cannot join {left!r} with {right!r}",
                    hint="join a topic with a table, two tables, or two topics with name=, within_ms=, grace_ms= and"
                    " stores=",
                )
            else:
                for each in (left, right):
                    if isinstance(each, TopicPattern):
                        raise UsageError(
                            f"join {name}: {each!r} may match several topics, whose offsets can be the same",
                            hint="join single topics; a handler of the pattern can send to an `App.topic` that is"
                            " joined",
                        )
                made = StreamJoin(name, stores, within_ms, grace_ms, late, function, is_left=is_left)
                for side, topic in enumerate((left, right)):
                    self.handler(topic)(in_place_of(function, functools.partial(made.add, side)))
                self.timer(name)(made.leave)
                if is_left:
                    self._closing(made.unmatched, in_place_of(function, made.leave_unmatched), stores[0])
                self._kept.append(made)
            return function

        return register

    def _check_late(self, name: str, late: Topic[Any, Any] | None) -> None:
        if late is not None and late not in self.outputs:
            raise UsageError(f"{self.app_id}: late={late!r} of {name} is not one of the app's outputs")

    def upgrade(
        self,
        from_schema: int,
        value: type[OV],
        *,
        key: type[OK] | None = None,
        store: str = DEFAULT_STORE,
        dropped: Sequence[str] = (),
    ) -> Callable[[UpgradeFunction[OK, OV]], UpgradeFunction[OK, OV]]:
        """Decorate the function that is called with (key, value) for each stored entry of an older `schema_version`.

        It returns None, an entry, or an iterable of entries. An entry is (key, value), or (store, key, value). A
        partition is upgraded once, when a process with this version recovers it. An upgrade from 1 leads to 2;
        upgrades of several versions run one after the other.

        Args:
            from_schema: the schema_version of the stored entries; lower than that of the app.
            value: the type of the stored values.
            key: the type of the stored keys; may be left out if the state still has a store of this name with keys of
                the same type.
            store: the store whose entries are upgraded; may be left out in a state of one map. Stores without an
                upgrade stay as they are.
            dropped: fields of older values that `value` omits on purpose, as in `MapState`.

        Raises:
            UsageError: `from_schema` is not lower than `schema_version`, the store already has an upgrade from
                `from_schema`, or the function cannot be called.
        """
        _check_versions(None, from_schema)
        check_leads_on(self.app_id, from_schema, self.schema_version)
        keys, values = None if key is None else KeyCodec(key), ValueCodec(value, check_dropped(dropped))

        def register(function: UpgradeFunction[OK, OV]) -> UpgradeFunction[OK, OV]:
            check_upgrade_function(function)
            twin = self.upgrades.get((from_schema, store))
            if twin is not None:
                raise UsageError(
                    f"{self.app_id}: store {store} has two upgrades from schema_version {from_schema},"
                    f" {place_of(twin.function)} and {place_of(function)}"
                )
            self.__dict__.pop("version", None)
            self.upgrades[from_schema, store] = DeclaredUpgrade(from_schema, store, keys, values, function)
            return function

        return register

    def upgrades_from(self, schema_version: int) -> frozenset[str]:
        """Return the stores whose entries are upgraded if they were written with `schema_version`."""
        return upgraded_stores(self.upgrades, schema_version, self.schema_version)

    @property
    def upgraded_fields(self) -> Mapping[tuple[int, str], StoreFields]:
        """The fields that each upgrade reads, by schema_version and store."""
        return {place: each.values.fields for place, each in self.upgrades.items()}

    def fields_read(self, schema_version: int) -> Mapping[str, StoreFields]:
        """Return the fields, by store, that the app reads in a state of this schema_version."""
        return fields_read(self.stored_fields, self.upgraded_fields, schema_version)

    def new_store(self, *, shards: int = SHARD_COUNT) -> Store:
        """Return the store of a new, empty state. UsageError: the factory does not return a state."""
        store = self._store_of(self.state())
        if store.shard_count not in (1, shards):
            store.clear(shards)
        return store

    def _made_state(self) -> S:
        try:
            return self.state()
        except UsageError:
            raise
        except Exception as error:  # of any class: it is the user's code
            raise UsageError(
                f"the state of app {self.app_id!r} cannot be made: {described(error)}{line_of(error)}",
                hint="repair the function in `state=`: `state=lambda: MapState(…)`",
            ) from error

    def _store_of(self, state: S) -> Store:
        names = [name for name, spec in self.timers.items() if spec.every_ms is None]
        return store_of(state, names if self.timers else None, self.calls)

    def _check_apart(self) -> None:
        """Raise UsageError if windows, sessions or a join share a store. Several tables may, if none is broadcast."""
        users: dict[str, object] = {}
        for each in self._kept:
            for store in each.stores if isinstance(each, StreamJoin) else (each.store,):
                other = users.setdefault(store, each)
                both_tables = isinstance(each, Table) and isinstance(other, Table)
                if other is not each and not (both_tables and store not in self.broadcast_stores):
                    raise UsageError(
                        f"{self.app_id}: {other} and {each} share the store {store!r}, and each would change and delete"
                        " the other's entries",
                        hint="give each a MapState of its own in `Stores`, and name it in store= or stores=",
                    )

    def validate(self) -> None:
        """Raise UsageError if an input has no handler, or the factory does not return a new state each time."""
        for call in self.calls.values():
            if call.topic not in self.handlers:
                raise UsageError(
                    f"{self.app_id}: call {call.name} has no handler for its answers",
                    hint=f"decorate a function (record, state, out) with @{call.name}.handler",
                )
        if len(self.broadcast_names) + len(self.internal_names) == len(self.inputs):
            raise UsageError(
                f"{self.app_id}: all inputs are broadcast tables, and none says how many partitions the app has",
                hint="declare another input; or leave broadcast=True out",
            )
        for topic in self.inputs:
            if topic not in self.handlers:
                raise UsageError(
                    f"{self.app_id}: input {topic.name} has no handler",
                    hint="decorate a function (record, state, out) with @app.handler(…)",
                )
        first, second = self._made_state(), self._made_state()
        for each in self._kept:
            each.check(first)
        self._check_apart()
        self._store_of(first)
        one, other = maps_of(first), maps_of(second)
        if first is second or any(one[name] is other.get(name) for name in one):
            raise UsageError(
                f"{self.app_id}: state= returned the same {type(first).__name__} twice,"
                " but each partition needs its own",
                hint="return a new object each time: `state=lambda: MapState(…)`",
            )
        check_upgrades(self.app_id, self.upgrades.values(), first)
        _ = self.version  # computed now, because files may be replaced while it runs


def check_app(app: object) -> None:
    """Raise UsageError if it is not an App, but perhaps the name of one; or if it is not complete, see
    `App.validate`."""
    if not isinstance(app, App):
        raise UsageError(
            f"{app!r} is of type {type(app).__name__}, not an App",
            hint="pass the object that `App(…)` returned: `from ledger import app`; a name such as ledger.py is for the"
            " command line, `snapreplay run ledger.py`",
        )
    app.validate()


def check_apps(apps: Sequence[App[Any]]) -> None:
    """Check that they can run in one process.

    Raises:
        UsageError: there is none, one is incomplete, or two have the same id.
    """
    if not apps:
        raise UsageError("there is no app to run", hint="pass an App, or a list of them")
    for each in apps:
        check_app(each)
    ids = [each.app_id for each in apps]
    if twice := [each for each in dict.fromkeys(ids) if ids.count(each) > 1]:
        raise UsageError(
            f"two of the apps have the id {twice[0]!r}: each would take the partitions of the other one",
            hint="name each app once; another app needs another id",
        )


def fingerprint() -> str:
    """Return what determinism depends on besides the app: Python, machine, byte order, codec versions."""
    return (
        f"{platform.python_implementation().lower()}-{platform.python_version()}"
        f" {platform.machine()}-{sys.byteorder}"
        f" msgspec-{msgspec.__version__} msgpack-{'.'.join(map(str, msgpack.version))}"
    )


def check_handler(function: Callable[..., object], arguments: str = "(record, state, out)") -> None:
    """Raise UsageError if the service could not call it, or calling it would run nothing."""
    if not callable(function):
        raise UsageError(f"handler {function!r} is not callable")
    called = function if inspect.isroutine(function) else type(function).__call__
    if any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in (function, called)):
        raise UsageError(
            f"handler {place_of(function)} is async, and what it awaits would differ in a replay",
            hint="use def, not async def: declare what is awaited with @app.call(), request it with `out.call(…)`, and"
            " handle the answer",
        )
    if inspect.isgeneratorfunction(function) or inspect.isgeneratorfunction(called):
        raise UsageError(
            f"handler {place_of(function)} is a generator, so calling it would not run its body",
            hint="use out.send instead of yield",
        )
    try:
        inspect.signature(function).bind(None, None, None)
    except (TypeError, ValueError) as error:
        raise UsageError(f"handler {place_of(function)} cannot be called with {arguments}: {error}") from error


def _check_app_id(app_id: object) -> None:
    if isinstance(app_id, str) and _LEGAL_APP_ID.fullmatch(app_id) and app_id not in {".", ".."}:
        if SAVEPOINT in app_id:
            raise UsageError(
                f"app id {app_id!r} is that of a savepoint: no app may write to it",
                hint=f"begin another app id with its state: `snapreplay init MODULE:APP --state-of {app_id}`",
            )
        return
    raise UsageError(
        f"app id {app_id!r} cannot be part of a topic name",
        hint=f'use 1 to {APP_ID_MAX} letters, digits, ".", "_" or "-"',
    )


def _check_versions(version: object, schema_version: object) -> None:
    if version is not None and (not isinstance(version, str) or not version):
        raise UsageError(f"version={version!r} is not a text", hint='use version="2026-11-3", or leave it out')
    if type(schema_version) is not int or schema_version < 1:
        raise UsageError(f"schema_version={schema_version!r} is not an integer ≥ 1")


def _check_state(app: App[Any]) -> None:
    state: object = app.state
    if not callable(state) or state is MapState:
        raise UsageError(
            f"{app.app_id}: state={state!r} makes no state, but each partition needs its own",
            hint="pass a function that returns a new one: `state=lambda: MapState(…)`",
        )
