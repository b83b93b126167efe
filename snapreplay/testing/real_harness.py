"""An app on a real broker, in a process of its own that can be killed: feed, wait, read outputs and state.

The harness and the process exchange frames of msgpack over two pipes.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Generic, Protocol, Self, TypeVar, overload

import msgspec

from snapreplay.app.app import App, check_app
from snapreplay.app.load import name_of
from snapreplay.app.made_record import check_output, check_topic, decoded, encoded, prepared, record_raw
from snapreplay.app.names import dead_letters_topic
from snapreplay.app.record import Headers, InputRecord, Output, RawRecord
from snapreplay.app.topic import Topic
from snapreplay.devbroker.broker import KEEP_OLD_RECORDS, LocalBroker
from snapreplay.errors import StopError, UnknownPartition, UsageError
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.feeding import KafkaFeeder
from snapreplay.service.loop_thread import LoopThread
from snapreplay.service.ports import TopicPartition
from snapreplay.service.redrive import is_note
from snapreplay.service.topics.reading import decided_bounds, reading
from snapreplay.state.contract import Store
from snapreplay.state.cursor import Slices, load_slices
from snapreplay.state.keys import K as MapKey
from snapreplay.state.map import MapState
from snapreplay.state.stores import Stores
from snapreplay.state.view import MapView, StoresView, View, view_of

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")
ST = TypeVar("ST", bound=Stores)
T = TypeVar("T")

DEADLINE_S = 60.0
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
    """An app on a real broker. `async with`, or `start` first and `close` last.

    The service runs in a process of its own, which loads the app by its name. `kill` is a SIGKILL of it. Records are
    fed and outputs are read by this process, also while the service is down.
    """

    def __init__(
        self,
        app: App[S],
        broker: Reachable,
        *,
        partitions: int = 1,
        prefix: str = "",
        settings: Mapping[str, Any] | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """Prepare the service of `app` in a process of its own.

        Args:
            partitions: of the topics that it creates.
            prefix: stands in front of the app id and of the topics' names, so that tests share a broker and nothing
                else. In the service process, `record.topic` and `record.id` have it, too.
            settings: of the service, as for `Settings(**settings)`; the broker's address is added.
            deadline_s: of each wait, seconds; it ends what hangs.

        Raises:
            UsageError: the app is not complete, or another process cannot import it by name.
        """
        check_app(app)
        name = name_of(app)
        if name is None:
            raise UsageError(
                f"{app.app_id}: another process cannot load the app, because no module has it as an attribute",
                hint="assign it at the top of a module: `app = make_app()`",
            )
        self._app = app
        self._prefix = prefix
        self._deadline_s = deadline_s
        given = {**_SETTINGS, **(settings or {})}
        kafka = {**given.get("kafka", {}), "bootstrap.servers": broker.bootstrap_servers}
        given["kafka"] = kafka
        self._settings = Settings(**given)
        self._order = Order(name, prefix, partitions, given)
        self._thread = LoopThread("snapreplay-real-harness")
        self._folder = tempfile.TemporaryDirectory(prefix="snapreplay-harness-")
        log_path = Path(self._folder.name) / "service.log"
        self._process = ServiceProcess(self.app_id, log_path)
        self._feeder: KafkaFeeder | None = None
        self._opened = False

    @property
    def app_id(self) -> str:
        """The app id with the prefix."""
        return self._prefix + self._app.app_id

    def prefixed(self, topic: Topic[Any, Any]) -> str:
        """Return the name of one of the app's topics in the cluster."""
        return self._prefix + topic.name

    @property
    def log(self) -> str:
        """The text that the service process wrote to standard error, over all restarts."""
        return self._process.log

    @property
    def pid(self) -> int:
        """The service process; a new one after each restart. Raises UsageError while it does not run."""
        return self._process.pid

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
        """Create what is missing (topics, genesis), start the service process, and wait until all partitions are LIVE.

        Raises:
            ServiceEnded: it refused to start, a partition FAILED, or it was too slow.
        """
        self._open()
        await asyncio.to_thread(self._process.launch, self._order)
        await self._process.ask(Request(Ask.LIVE, self._deadline_s))

    async def kill(self) -> None:
        """Kill the service process, and wait until it is gone."""
        await asyncio.to_thread(self._process.kill)

    async def stop(self) -> None:
        """Stop it gracefully, as by SIGTERM: the batch is finished, a last snapshot is written."""
        await self._process.ask(Request(Ask.STOPPED, self._deadline_s))
        await asyncio.to_thread(self._process.kill)

    async def restart(self) -> None:
        """Start it again, killing it first if it runs; return when all partitions are LIVE. Raises ServiceEnded."""
        await self.kill()
        await self.start()

    async def caught_up(self) -> None:
        """Wait until all records that are in the inputs now are committed, those of open transactions included. Raises
        ServiceEnded: a partition FAILED, the process ended, or it was too slow."""
        await self._process.ask(Request(Ask.CAUGHT_UP, self._deadline_s))

    async def state(self, partition: int = 0) -> S:
        """Return the committed state of a partition as a recovery would restore it now, proven by its digest. Raises
        ServiceEnded: it would fail, or the process ended."""
        view: S = (await self._restored(partition)).view
        return view

    @overload
    async def view(self: RealHarness[MapState[MapKey, V]], partition: int = 0) -> MapView[MapKey, V]: ...
    @overload
    async def view(self: RealHarness[ST], partition: int = 0) -> StoresView[ST]: ...
    @overload
    async def view(self, partition: int = 0) -> View[S]: ...
    async def view(self, partition: int = 0) -> View[Any]:
        """Return the same state typed and read-only; it does not follow later batches. Raises as `state`, and
        UsageError: it is no map."""
        store = await self._restored(partition)
        return view_of(partition, store.committed_view)

    async def _restored(self, partition: int) -> Store:
        answer = await self._process.ask(Request(Ask.READ, self._deadline_s, partition))
        assert isinstance(answer, StateRead)  # noqa: S101 - what this request is answered with
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
        """Feed one record as `feed` does, with bytes that need not decode."""
        check_topic(topic)
        if self._app.declaration(topic.name) is None:
            raise UsageError(f"{self._app.app_id}: {topic.name} is not an input")
        raw = record_raw(topic, key, value, timestamp_ms=timestamp_ms, headers=headers)
        output = Output(self.prefixed(topic), key, value, partition, False, timestamp_ms, raw.headers)
        place, offset = await self._elsewhere(lambda: self._send(output))
        return msgspec.structs.replace(raw, topic=place.topic, partition=place.partition, offset=offset)

    async def outputs(self, topic: Topic[K, V]) -> list[Received[K, V]]:
        """Return every committed record of an output topic, partition by partition. UsageError: no output of the
        app."""
        check_output(topic, self._app)
        return [
            Received(*decoded(topic, each.key, each.value), each.headers, each.partition, each.offset, each.timestamp)
            for each in await self._elsewhere(lambda: self._read(self.prefixed(topic)))
        ]

    async def dead_letters(self) -> list[RawRecord]:
        """Return every committed dead letter, undecoded, with the headers that say why. Empty if there is no such
        topic."""
        found = await self._elsewhere(lambda: self._read(dead_letters_topic(self.app_id)))
        return [each for each in found if not is_note(each)]

    def close(self) -> None:
        """Kill the process and end all clients. Idempotent, usable without a loop."""
        self._process.kill()
        if self._opened:
            self._opened = False
            if self._feeder is not None:
                with suppress(Exception):  # it only flushes what nobody waits for
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

    async def _send(self, output: Output) -> tuple[TopicPartition, int]:
        if output.partition is not None:
            facts = await KafkaCluster(self._settings).topics([output.topic])
            count = facts[output.topic].partition_count
            if output.partition not in range(count):
                raise UnknownPartition(output.partition, count)
        if self._feeder is None:
            feeder = KafkaFeeder(self._settings)
            await feeder.start()
            self._feeder = feeder
        (place,) = await self._feeder.feed([output])
        return place

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


def broker(data_dir: Path | str | None = None, port: int = 0) -> LocalBroker:
    """Provide a local Kafka broker for the length of a `with` block; `async with` works, too. Its `bootstrap_servers`
    is the address for clients. It ends with this process, even after a SIGKILL.

    Args:
        data_dir: where to keep the data; None: a temporary directory, removed at the end.
        port: of 127.0.0.1; 0: a free one.

    Raises (at the start of the block):
        LocalBrokerUnavailable: Java, Maven or the jars are missing, or the broker failed; names the remedy.
        UsageError: another program listens on the port.
    """
    return LocalBroker(data_dir=None if data_dir is None else Path(data_dir), port=port, properties=KEEP_OLD_RECORDS)


LATER_S = 5.0
"""The process gives up by itself at its deadline; after this much longer it counts as hanging."""
_LOG_CHARACTERS = 4000
_LENGTH_BYTES = 4


class Order(msgspec.Struct, frozen=True):
    """The first frame: which app to run. Its id and the names of its topics get the prefix."""

    app: str
    prefix: str
    partition_count: int
    settings: dict[str, Any]


class Ask(StrEnum):
    """The requests to a service, by what is done when they are answered. READ returns the state of a partition."""

    LIVE = "live"
    CAUGHT_UP = "caught up"
    READ = "read"
    STOPPED = "stopped"


class Request(msgspec.Struct, frozen=True):
    """One request, with the time that it may take."""

    done: Ask
    deadline_s: float
    partition: int = 0


class Acknowledged(msgspec.Struct, frozen=True, tag=True):
    """The answer that what was asked for is so."""


class StateRead(msgspec.Struct, frozen=True, tag=True):
    """Every entry of a state."""

    slices: Slices
    stream_time_ms: int


class Failed(msgspec.Struct, frozen=True, tag=True):
    """An error of the service; `kind` is its class.

    Safe: The names of the app and of its topics have the prefix of the harness: no other app is affected.
    """

    kind: str
    message: str
    hint: str


Answer = Acknowledged | StateRead | Failed


def write_frame(pipe: IO[bytes], message: Order | Request | Answer) -> None:
    data = msgspec.msgpack.encode(message)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
    pipe.flush()


def read_frame(pipe: IO[bytes], kind: Any) -> Any:
    """Read a frame of this type; None at the end of the pipe, and for a frame that its writer did not finish."""
    length = int.from_bytes(pipe.read(_LENGTH_BYTES), "big")
    data = pipe.read(length)
    return msgspec.msgpack.decode(data, type=kind) if length and len(data) == length else None


class ServiceEnded(StopError):
    """The service process ended by itself, refused to start, hangs, or has a FAILED partition."""


class ServiceProcess:
    """The process of a service, at most one at a time, over any number of restarts."""

    def __init__(self, app_id: str, log_path: Path) -> None:
        """Take `app_id` for messages."""
        self._app_id = app_id
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._asking = asyncio.Lock()

    @property
    def log(self) -> str:
        """Its standard error so far, over all restarts."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    @property
    def pid(self) -> int:
        """The pid of the process that runs now."""
        return self._running().pid

    def launch(self, order: Order) -> None:
        if self._process is not None:
            raise UsageError(f"{self._app_id} runs already")
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "snapreplay.testing.real_service"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        self._say(order)

    async def ask(self, request: Request) -> Acknowledged | StateRead:
        """Ask the service process.

        Raises:
            ServiceEnded: the service answers with an error, has ended, or hangs; then it is killed.
            UsageError: it does not run.
        """
        async with self._asking:
            try:
                async with asyncio.timeout(request.deadline_s + LATER_S):
                    answer = await asyncio.to_thread(self._answer, request)
            except (TimeoutError, OSError) as error:
                raise self._ended(request, error) from error
        match answer:
            case Failed(kind, message, hint):
                raise ServiceEnded(f"{self._app_id}: {kind}: {message}", hint=hint)
            case Acknowledged() | StateRead():
                return answer

    def kill(self) -> None:
        """Send SIGKILL; return when the process is gone. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):  # what it did not read is lost with it
                        pipe.close()

    def _answer(self, request: Request) -> Answer:
        self._say(request)
        pipe = self._running().stdout
        answer: Answer | None = read_frame(pipe, Answer) if pipe else None
        if answer is None:
            raise BrokenPipeError
        return answer

    def _say(self, message: Order | Request) -> None:
        pipe = self._running().stdin
        if pipe is not None:
            with suppress(BrokenPipeError):  # its end is seen where the answer is read
                write_frame(pipe, message)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise UsageError(f"{self._app_id} does not run", hint="`await harness.restart()` starts it again")
        return self._process

    def _ended(self, request: Request, error: BaseException) -> ServiceEnded:
        self.kill()
        what, hint = "ended by itself", ""
        if isinstance(error, TimeoutError):
            what = f"gave no answer within {request.deadline_s + LATER_S:g} s and was killed"
            hint = (
                "a handler must not wait: nothing else runs meanwhile; or give it more time with"
                " `RealHarness(…, deadline_s=…)`"
            )
        return ServiceEnded(
            f"{self._app_id}: not {request.done}: the service process {what}; its log ends"
            f" with\n{self.log[-_LOG_CHARACTERS:]}",
            hint=hint,
        )
