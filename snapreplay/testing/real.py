"""An app on a real broker, in processes of its own that can be killed: feed, wait, read outputs and state, compare."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from heapq import merge
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar, overload

import msgspec

from snapreplay.app.app import App, check_app
from snapreplay.app.harness import Diverged
from snapreplay.app.load import name_of
from snapreplay.app.made_record import UNSET_MS, check_output, checked_records, decoded, encoded, prepared, record_raw
from snapreplay.app.names import dead_letters_topic, increments_topic
from snapreplay.app.record import Headers, InputRecord, Output, RawRecord, Record
from snapreplay.app.topic import InternalTopic, Topic
from snapreplay.counted import counted
from snapreplay.devbroker.broker import KEEP_OLD_RECORDS, LocalBroker
from snapreplay.errors import UnknownPartition, UsageError
from snapreplay.service.config.settings import Settings
from snapreplay.service.config.sources import merged, names_in
from snapreplay.service.dead_letters import is_note
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.feeding import KafkaFeeder
from snapreplay.service.loop_thread import LoopThread
from snapreplay.service.ports import TopicPartition
from snapreplay.service.topics.reading import decided_bounds, reading
from snapreplay.state.composite import Store
from snapreplay.state.cursor import load_slices
from snapreplay.state.keys import K as MapKey
from snapreplay.state.map import MapState
from snapreplay.state.stores import Stores
from snapreplay.state.view import MapView, StoresView, View, view_of
from snapreplay.testing.expected import Expected, output_difference, state_difference
from snapreplay.testing.service_process import Answered, Ask, Ends, Order, Request, ServiceEnded, ServiceProcess

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")
ST = TypeVar("ST", bound=Stores)
T = TypeVar("T")

DEADLINE_S = 60.0
LOOK_S = 0.02
MOMENT_S = 0.5
"""Long enough for a running service to commit many batches, and for a starting one to recover."""
_SETTINGS: dict[str, Any] = {
    "instance_id": "real-harness",  # a killed member of this name gets its partitions back at once
    "group": {"session_timeout_ms": 3000, "heartbeat_interval_ms": 500},
}


class Reachable(Protocol):
    """A broker: what `snapreplay.testing.broker` gives, or anything else with its address."""

    @property
    def bootstrap_servers(self) -> str: ...


class Received(msgspec.Struct, Generic[K, V], frozen=True):
    """A committed record of an output topic, decoded by the app's codecs."""

    key: K
    value: V
    headers: Headers
    partition: int
    offset: int
    timestamp_ms: int


class RealHarness(Generic[S]):
    """An app on a real broker. Use `async with`, or call `start` first and `close` last.

    The service runs in separate processes, which load the app by its name. This process feeds records and reads
    outputs, also while the service is down.
    """

    def __init__(
        self,
        app: App[S],
        broker: Reachable,
        *,
        partitions: int = 1,
        processes: int = 1,
        standbys: int = 0,
        seed: int = 0,
        prefix: str = "",
        settings: Mapping[str, Any] | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """Prepare the service of `app` in processes of its own.

        Args:
            partitions: of the topics that it creates.
            processes: of the service, which share the partitions.
            standbys: warm copies of each partition, in other processes (the setting `standby.replicas`).
            seed: of the kills.
            prefix: put before the app id and the names of the topics, so that tests can share a broker. The service
                sees it in `record.topic` and `record.id`.
            settings: of the service, as for `Settings(**settings)`; the broker's address is added.
            deadline_s: of each wait, seconds; it ends what hangs.

        Raises:
            UsageError: the app is not complete, another process cannot import it by name, there are no processes, or
                both `standbys` and `settings` say how many warm copies there are.
        """
        check_app(app)
        if processes < 1:
            raise UsageError(f"{app.app_id}: processes={processes}: at least one must run the service")
        name = name_of(app)
        if name is None:
            raise UsageError(
                f"{app.app_id}: another process cannot load the app, because no module has it as an attribute",
                hint="assign it at the top of a module: `app = make_app()`",
            )
        self._app = app
        self._prefix = prefix
        self._deadline_s = deadline_s
        given = dict(settings or {})
        if standbys and "standby.replicas" in names_in(given):
            raise UsageError(
                f"{app.app_id}: standbys={standbys}, and settings has"
                f" standby.replicas={given['standby']['replicas']!r}",
                hint="pass `standbys=` alone",
            )
        given = merged(given, {**_SETTINGS, "standby": {"replicas": standbys}})
        kafka = {**given.get("kafka", {}), "bootstrap.servers": broker.bootstrap_servers}
        given["kafka"] = kafka
        self._settings = Settings(**given)
        self._thread = LoopThread("snapreplay-real-harness")
        self._folder = tempfile.TemporaryDirectory(prefix="snapreplay-harness-")
        self._processes: list[ServiceProcess] = []
        first_id = self._settings.instance_id
        for number in range(processes):
            own = {**given, "instance_id": f"{first_id}-{number}" if first_id and number else first_id}
            log_path = Path(self._folder.name) / f"service-{number}.log"
            self._processes.append(ServiceProcess(self.app_id, log_path, Order(name, prefix, partitions, own)))
        self._seed, self._dice = seed, random.Random(seed)
        self._feeder: KafkaFeeder | None = None
        self._feeding = asyncio.Lock()
        self._fed: dict[str, Topic[Any, Any]] = {}
        self._opened = self._is_made = False

    @property
    def app_id(self) -> str:
        """The app id with the prefix."""
        return self._prefix + self._app.app_id

    def prefixed(self, topic: Topic[Any, Any]) -> str:
        """Return the name of one of the app's topics in the cluster."""
        return self._prefix + topic.name

    @property
    def log(self) -> str:
        """The text that the service processes wrote to standard error, one after the other, over all restarts."""
        return "".join(each.log for each in self._processes)

    @property
    def pid(self) -> int:
        """The process id of the first service process; it changes with each restart. Raises UsageError while it does
        not run."""
        return self._processes[0].pid

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    async def start(self) -> None:
        """Create what is missing (topics, genesis), start the processes, and wait until all partitions are LIVE.

        Raises:
            ServiceEnded: a process refused to start, a partition is FAILED, or the start took too long.
            UsageError: all run already.
        """
        self._open()
        if all(each.is_running for each in self._processes):
            raise UsageError(f"{self.app_id} runs already")
        for each in self._processes:
            if not each.is_running:
                await asyncio.to_thread(each.launch)
                if not self._is_made:  # the others find what the first one has created
                    await self._ask(each, Ask.LIVE)
                    self._is_made = True
        await self._poll(self._not_live, self._until_s())

    async def kill(self, process: int | None = None) -> None:
        """Kill all processes (SIGKILL), or the one with this number, counted from 0; return when they have ended."""
        for each in self._processes if process is None else [self._processes[process]]:
            await asyncio.to_thread(each.kill)

    async def kill_some(self) -> None:
        """Kill one or more of the processes at a random moment, wait for a while, and start them again.

        The seed decides when, which, and for how long. If others run, it is sometimes longer than the session
        timeout, so that they take over the partitions. Returns before the partitions are LIVE.
        """
        count = len(self._processes)
        victims = self._dice.sample(self._processes, self._dice.randint(1, count))
        until_takeover_s = self._settings.group.session_timeout_ms / 1000 + MOMENT_S
        pauses_s = (0.0, until_takeover_s) if len(victims) < count else (0.0, MOMENT_S)
        await asyncio.sleep(self._dice.uniform(0, MOMENT_S))
        for each in victims:
            await asyncio.to_thread(each.kill)
        await asyncio.sleep(self._dice.choice(pauses_s))
        for each in victims:
            await asyncio.to_thread(each.launch)

    async def stop(self) -> None:
        """Stop the running processes gracefully, as SIGTERM does: each finishes its batch and writes a last snapshot.
        Raises ServiceEnded; UsageError if none runs."""
        for each in self._running():
            await self._ask(each, Ask.STOPPED)
            await asyncio.to_thread(each.kill)

    async def restart(self) -> None:
        """Kill the running processes, and start all again; return when all partitions are LIVE. Raises ServiceEnded."""
        await self.kill()
        await self.start()

    async def caught_up(self) -> None:
        """Wait until all records that are in the inputs now are processed and committed, including those of open
        transactions. Raises ServiceEnded: a partition is FAILED, a process ended, or it took too long."""
        until_s, ends = self._until_s(), Ends()
        await self._behind(ends)  # a partition may have FAILED already
        more = await self._ends()
        while ends | more != ends:
            ends.update(more)
            await self._poll(lambda: self._behind(ends), until_s)
            more = await self._ends(internal=True)  # where what was read may have led to records

    def _until_s(self) -> float:
        return asyncio.get_running_loop().time() + self._deadline_s

    async def _poll(self, look: Callable[[], Awaitable[str]], until_s: float) -> None:
        """Look until nothing is missing any more. ServiceEnded: it takes too long. No request is cancelled: its answer
        would be taken for that of the next one."""
        while missing := await look():
            if asyncio.get_running_loop().time() > until_s:
                raise ServiceEnded(f"{self.app_id}: {missing}, after {self._deadline_s:g} s")
            await asyncio.sleep(LOOK_S)

    async def _not_live(self) -> str:
        answers = [await self._ask(each, Ask.LIVE) for each in self._running()]
        live = {number for each in answers for number in each.live}
        missing = [str(number) for number in range(await self._partition_count()) if number not in live]
        return f"not LIVE: partition {', '.join(missing)}" if missing else ""

    async def _ends(self, *, internal: bool = False) -> Ends:
        return (await self._ask(self._running()[0], Ask.ENDS, internal=internal)).ends

    async def _behind(self, ends: Ends) -> str:
        """Say what is not committed yet; empty if nothing. ServiceEnded: a partition FAILED."""
        answers = [  # the first one answers for all; a process that is asked for no ends says only what FAILED
            await self._ask(each, Ask.CAUGHT_UP, ends={} if number else ends)
            for number, each in enumerate(self._running())
        ]
        return f"not caught up: {answers[0].behind}" if answers[0].behind else ""

    def _running(self) -> list[ServiceProcess]:
        """Return the running processes; if there are none, the first one, whose request raises UsageError."""
        return [each for each in self._processes if each.is_running] or self._processes[:1]

    async def _ask(self, process: ServiceProcess, done: Ask, **given: Any) -> Answered:
        return await process.ask(Request(done, self._deadline_s, **given))

    async def compare(self, fold: Callable[[list[Record[Any, Any]]], Expected]) -> None:
        """Wait until the app has caught up and no call is pending, then compare its state and outputs with the result
        of `fold` for the inputs.

        `fold` gets the decoded records of the inputs, except those of internal topics: in offset order within a
        partition, otherwise by timestamp. Their topic names have no prefix.

        Raises:
            Diverged: names the first key that differs, with both values, and the seed.
            UsageError: the state is not made of maps, or several partitions have the same key.
            As `caught_up` and `state`.
        """
        await self.caught_up()
        while self._app.calls and await self._unanswered():
            await self._poll(self._unanswered, self._until_s())
            await self.caught_up()  # answers may lead to records, and to calls
        expected = fold(await self._inputs())
        for topic, pairs in expected.outputs.items():
            sent = [(each.key, each.value) for each in await self.outputs(topic)]
            self._refuse(f"outputs to {topic.name}", output_difference(sent, pairs))
        if expected.state is None:
            return
        states = [store.view for store in await self._stores()]
        self._refuse("state", state_difference(states, expected.state, self._app.broadcast_stores))

    async def _stores(self) -> list[Store]:
        return [await self._restored(number) for number in range(await self._partition_count())]

    async def _unanswered(self) -> str:
        pending = sum(len(store.calls.pending()) for store in await self._stores() if store.calls is not None)
        return f"not compared: {counted(pending, 'call')} pending" if pending else ""

    def _refuse(self, what: str, difference: str) -> None:
        if difference:
            raise Diverged(f"{self._app.app_id}: {what}: {difference} (seed {self._seed})")

    async def _inputs(self) -> list[Record[Any, Any]]:
        """Return what is in the inputs, as the service takes it: of several partitions the older record first."""
        named = (*self._app.input_names, *self._app.broadcast_names)
        plain = [each for each in self._app.inputs if each.name in named and not isinstance(each, InternalTopic)]
        topics = {each.name: each for each in plain} | self._fed
        found: list[list[RawRecord]] = []
        for name in topics:
            partitions: dict[int, list[RawRecord]] = {}
            for each in await self._committed(name):
                partitions.setdefault(each.partition, []).append(msgspec.structs.replace(each, topic=name))
            found += partitions.values()
        records: list[Record[Any, Any]] = []
        for each in merge(*found, key=lambda each: each.timestamp):
            with suppress(Exception):  # a codec may raise anything; the service has made it a dead letter
                key, value = decoded(topics[each.topic], each.key, each.value)
                place = (each.topic, each.partition, each.offset, each.timestamp)
                records.append(Record(self._app.app_id, *place, key, value, each.headers))
        return records

    async def state(self, partition: int = 0) -> S:
        """Return the committed state of a partition as a recovery would restore it now, proven by its digest. Raises
        ServiceEnded: a recovery would fail, or the process ended."""
        view: S = (await self._restored(partition)).view
        return view

    @overload
    async def view(self: RealHarness[MapState[MapKey, V]], partition: int = 0) -> MapView[MapKey, V]: ...
    @overload
    async def view(self: RealHarness[ST], partition: int = 0) -> StoresView[ST]: ...
    @overload
    async def view(self, partition: int = 0) -> View[S]: ...
    async def view(self, partition: int = 0) -> View[Any]:
        """Return the same state, typed and read-only; it does not follow later batches. Raises as `state`."""
        store = await self._restored(partition)
        return view_of(partition, store.committed_view)

    async def _restored(self, partition: int) -> Store:
        answer = await self._ask(self._running()[0], Ask.READ, partition=partition)
        store = self._app.new_store()
        load_slices(store, answer.slices, answer.stream_time_ms)
        return store

    async def feed(
        self,
        topic: Topic[K, V],
        *,
        key: K | None = None,
        value: V | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> RawRecord:
        """Write one record to an input; return it with its partition and offset. Without `partition`, Kafka's hash of
        the key decides; without `timestamp_ms`, it gets the present time.

        Raises:
            UsageError: not an input, or the key or value is not what the topic's codec encodes.
            UnknownPartition: the input has no such partition.
        """
        data = encoded(prepared(topic), key, value)
        return await self.feed_raw(topic, *data, timestamp_ms=timestamp_ms, headers=headers, partition=partition)

    async def feed_raw(
        self,
        topic: Topic[Any, Any],
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> RawRecord:
        """Feed one record as `feed` does, with key and value as bytes, which need not decode."""
        raw = record_raw(topic, key, value, timestamp_ms=timestamp_ms, headers=headers)
        if self._app.input_named(topic.name) is None:
            raise UsageError(f"{self._app.app_id}: {topic.name} is not an input")
        self._fed.setdefault(topic.name, topic)
        (fed,) = await self._feed([raw], partition)
        return fed

    async def feed_all(self, records: Iterable[RawRecord], *, kills: int = 0) -> list[RawRecord]:
        """Write records made by `record`, in order; return them with their partitions and offsets.

        Args:
            kills: number of `kill_some` calls; the seed chooses the places between records.

        Raises:
            As `feed`.
        """
        given, fed = [self._as_written(each) for each in checked_records(records)], list[RawRecord]()
        cuts = sorted(self._dice.randint(0, len(given)) for _ in range(kills))
        for start, end in pairwise([0, *cuts]):
            fed += await self._feed(given[start:end])
            await self.kill_some()
        return fed + await self._feed(given[len(fed) :])

    def _as_written(self, record: RawRecord) -> RawRecord:
        """Return a record by the schemas of the registry: `record` writes by schemas that only this process knows."""
        topic = self._app.input_named(record.topic)
        if topic is None:
            raise UsageError(f"{self._app.app_id}: {record.topic} is not an input")
        self._fed.setdefault(record.topic, topic)
        if topic.key.schemas is None and topic.value.schemas is None:
            return record
        try:
            key, value = decoded(topic, record.key, record.value)
        except Exception:  # noqa: BLE001 - a codec may raise anything, and bytes of `record_raw` need not decode
            return record
        key, value = encoded(prepared(topic), key, value)
        return msgspec.structs.replace(record, key=key, value=value)

    async def _feed(self, records: list[RawRecord], partition: int | None = None) -> list[RawRecord]:
        outputs: list[Output] = []
        for each in records:
            at_ms = None if each.timestamp == UNSET_MS else each.timestamp
            topic = self._prefix + each.topic
            outputs.append(Output(topic, each.key, each.value, partition, False, at_ms, each.headers))
        places = await self._elsewhere(lambda: self._send(outputs)) if outputs else []
        return [
            msgspec.structs.replace(each, topic=place.topic, partition=place.partition, offset=offset)
            for each, (place, offset) in zip(records, places, strict=True)
        ]

    async def outputs(self, topic: Topic[K, V]) -> list[Received[K, V]]:
        """Return every committed record of an output topic, partition by partition. UsageError: no output of the
        app."""
        check_output(topic, self._app)
        return [
            Received(*decoded(topic, each.key, each.value), each.headers, each.partition, each.offset, each.timestamp)
            for each in await self._committed(topic.name)
        ]

    async def dead_letters(self) -> list[RawRecord]:
        """Return every committed dead letter, undecoded, with the headers that say why. Empty if there is no such
        topic."""
        found = await self._committed(dead_letters_topic(self._app.app_id))
        return [each for each in found if not is_note(each)]

    async def _committed(self, name: str) -> list[RawRecord]:
        """Return the committed records of a topic, by its name without the prefix."""
        return await self._elsewhere(lambda: self._read(self._prefix + name))

    async def _partition_count(self) -> int:
        topic = increments_topic(self.app_id)
        facts = await self._elsewhere(lambda: KafkaCluster(self._settings).topics([topic]))
        return facts[topic].partition_count

    def close(self) -> None:
        """Kill the processes and end all clients. Idempotent, usable without a loop."""
        for each in self._processes:
            each.kill()
        if self._opened:
            self._opened = False
            if self._feeder is not None:
                with suppress(Exception):  # it only flushes writes that have no waiter left
                    self._thread.submit(self._feeder.close()).result(self._deadline_s)
            self._thread.stop()
        self._folder.cleanup()

    def _open(self) -> None:
        if not self._opened:
            self._thread.start()
            self._opened = True

    async def _elsewhere(self, work: Callable[[], Awaitable[T]]) -> T:
        """Work in the loop of the clients: a test's own loop may end before them."""
        self._open()

        async def bounded() -> T:
            async with asyncio.timeout(self._deadline_s):
                return await work()

        return await self._thread.run(bounded())

    async def _send(self, outputs: list[Output]) -> list[tuple[TopicPartition, int]]:
        for output in outputs:
            if output.partition is not None:
                facts = await KafkaCluster(self._settings).topics([output.topic])
                count = facts[output.topic].partition_count
                if output.partition not in range(count):
                    raise UnknownPartition(output.partition, count)
        async with self._feeding:  # a feeder takes one call at a time
            if self._feeder is None:
                feeder = KafkaFeeder(self._settings)
                await feeder.start()
                self._feeder = feeder
            return await self._feeder.feed(outputs)

    async def _read(self, topic: str) -> list[RawRecord]:
        cluster = KafkaCluster(self._settings)
        facts = (await cluster.topics([topic])).get(topic)
        found: list[RawRecord] = []
        async with reading(cluster) as reader:
            for number in range(facts.partition_count if facts else 0):
                source = TopicPartition(topic, number)
                async for records in reader.read(source, *await decided_bounds(cluster, source)):
                    found += [_plain(each) for each in records]
        return found


def _plain(record: InputRecord) -> RawRecord:
    return RawRecord(
        record.topic, record.partition, record.offset, record.timestamp, record.key, record.value, tuple(record.headers)
    )


@asynccontextmanager
async def real_harness(
    app: App[S],
    *,
    partitions: int = 4,
    processes: int = 2,
    standbys: int = 1,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    deadline_s: float = DEADLINE_S,
) -> AsyncIterator[RealHarness[S]]:
    """Provide a `RealHarness` with its own broker, several processes and warm copies, during an `async with` block.
    Arguments and errors are those of `RealHarness` and `broker`."""
    async with broker() as kafka:
        made = RealHarness(
            app,
            kafka,
            partitions=partitions,
            processes=processes,
            standbys=standbys,
            seed=seed,
            settings=settings,
            deadline_s=deadline_s,
        )
        async with made:
            yield made


def broker(data_dir: Path | str | None = None, port: int = 0) -> LocalBroker:
    """Run a local Kafka broker during a `with` or `async with` block. Its `bootstrap_servers` is the address for
    clients. It ends with this process, even after a SIGKILL.

    Args:
        data_dir: where to keep the data; None: a temporary directory, removed at the end.
        port: of 127.0.0.1; 0: a free one.

    Raises (at the start of the block):
        LocalBrokerUnavailable: Java, Maven or the jars are missing, or the broker failed; names the remedy.
        UsageError: another program listens on the port.
    """
    return LocalBroker(data_dir=None if data_dir is None else Path(data_dir), port=port, properties=KEEP_OLD_RECORDS)
