"""The contestants: what each needs before it starts, and its command line. All do the same work, a running total per
key with one output per record, exactly once, one thread."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol

from benchmarks import harness
from snapreplay.devbroker import jars

HERE = Path(__file__).parent
TOOLS = Path(".peers")
LEDGER = "benchmarks/ledger_app.py"
QUIX = "quixstreams==3.28.1"


class App(NamedTuple):
    """One app of a contestant. Its topics are `id`-in (or `input_topic`) and `id`-out."""

    id: str
    servers: str
    input_topic: str
    state_dir: Path
    session_ms: int
    standbys: int = 0

    @property
    def output_topic(self) -> str:
        return f"{self.id}-out"


class Command(NamedTuple):
    """The command line of one process, and what its environment has besides."""

    words: Sequence[str]
    environment: Mapping[str, str] = MappingProxyType({})


class Contestant(Protocol):
    """A way to do the work.

    Attributes:
        keeps_state: whether it has its state again after a kill.
        fails_over: whether another process can take its partition.
    """

    name: str
    keeps_state: bool
    fails_over: bool
    has_standbys: bool

    def prepare(self, app: App) -> None:
        """Make what the app needs in the broker, beside its input and output."""

    def command(self, app: App, instance: str) -> Command: ...


class Snapreplay:
    """This project, with or without its compiled engine."""

    keeps_state = fails_over = has_standbys = True

    def __init__(self, name: str, engine: str) -> None:
        self.name = name
        self._engine = engine

    def prepare(self, app: App) -> None:
        for words in (["topics", "ensure"], ["init"]):
            command = [sys.executable, "-m", "snapreplay.api.cli", *words, LEDGER, "--bootstrap-servers", app.servers]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | self._environment(app))

    def command(self, app: App, instance: str) -> Command:
        port = harness.free_port()
        words = harness.service_arguments(
            LEDGER,
            app.servers,
            port,
            f"instance_id={instance}",
            f"group.session_timeout_ms={app.session_ms}",
            f"standby.replicas={app.standbys}",
        )
        return Command([sys.executable, *words], self._environment(app))

    def _environment(self, app: App) -> dict[str, str]:
        return {"BENCH_APP": app.id, "BENCH_INPUT": app.input_topic, "SNAPREPLAY_ENGINE": self._engine}


class BareLoop:
    """The loop of `benchmarks.floor`: the same transactions, nothing is restored."""

    name = "bare loop"
    keeps_state = fails_over = has_standbys = False

    def prepare(self, app: App) -> None:
        harness.create_topics(app.servers, f"{app.id}-changes")

    def command(self, app: App, instance: str) -> Command:
        del instance
        return Command([sys.executable, "-m", "benchmarks.floor", app.servers, app.id, app.input_topic])


class KafkaStreams:
    """Kafka Streams with one thread and its default commit interval; its store in memory or in RocksDB."""

    keeps_state = fails_over = has_standbys = True

    def __init__(self, name: str, store: str) -> None:
        self.name = name
        self._store = store

    def prepare(self, app: App) -> None:
        """Fetch and compile it, the first time. It makes its changelog topic itself."""
        del app
        kafka_streams()

    def command(self, app: App, instance: str) -> Command:
        place = kafka_streams()
        timeouts = [f"session.timeout.ms={app.session_ms}", f"heartbeat.interval.ms={app.session_ms // 6}"]
        state = app.state_dir / instance
        names = [app.servers, app.id, app.input_topic, app.output_topic, str(state), self._store]
        words = ["java", "-Xmx4g", "-cp", f"{place}:{place}/lib/*", "RunningTotal", *names, *timeouts]
        return Command([*words, f"num.standby.replicas={app.standbys}"])


class Quix:
    """Quix Streams with its default commit interval of 5 s."""

    name = "Quix Streams"
    keeps_state = fails_over = True
    has_standbys = False

    def prepare(self, app: App) -> None:
        """Install it, the first time. It makes its changelog topic itself."""
        del app
        quix()

    def command(self, app: App, instance: str) -> Command:
        state = app.state_dir / instance
        names = [app.servers, app.id, app.input_topic, app.output_topic, str(state), str(app.session_ms)]
        return Command([str(quix()), str(HERE / "quix_total.py"), *names])


CONTESTANTS: tuple[Contestant, ...] = (
    Snapreplay("snapreplay", "compiled"),
    Snapreplay("snapreplay, pure", "pure"),
    BareLoop(),
    KafkaStreams("Kafka Streams, memory", "memory"),
    KafkaStreams("Kafka Streams, RocksDB", "rocksdb"),
    Quix(),
)


def kafka_streams() -> Path:
    """Return the folder with the compiled class and `lib/`; made once, by Maven and javac."""
    place, pom = (TOOLS / "kafka-streams").absolute(), (HERE / "pom.xml").read_bytes()
    source = HERE / "RunningTotal.java"

    def filled(fresh: Path) -> None:
        jars.copy_dependencies(pom, fresh / "lib")
        subprocess.run(["javac", "-cp", f"{fresh}/lib/*", "-d", str(fresh), str(source)], check=True)

    jars.fill(place, pom + source.read_bytes(), filled)
    return place


def quix() -> Path:
    """Return the Python of an environment with Quix Streams; made once, by pip."""
    place = (TOOLS / "quix").absolute()
    if not (place / ".installed").exists():
        shutil.rmtree(place, ignore_errors=True)
        venv.create(place, with_pip=True)
        subprocess.run([place / "bin/python", "-m", "pip", "install", "--quiet", QUIX], check=True)
        (place / ".installed").touch()
    return place / "bin/python"
