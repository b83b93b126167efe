"""The command `snapreplay dev`: everything that an app needs, on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from snapreplay.api.cli.output import note
from snapreplay.api.server import HttpServer
from snapreplay.app.app import App
from snapreplay.app.code_version import own_files
from snapreplay.app.ways import app_name
from snapreplay.devbroker.broker import KEEP_OLD_RECORDS, LocalBroker
from snapreplay.devbroker.errors import ToolsMissing
from snapreplay.devbroker.free_ports import is_free_soon
from snapreplay.errors import UsageError
from snapreplay.service.config.settings import Settings
from snapreplay.service.decisions.init import init_app
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.program import run
from snapreplay.service.topics.requirements import ensure_topics

INSTEAD = (
    "do without the local broker, on a cluster that has the app's input and output topics: run"
    " `snapreplay topics ensure APP`, `snapreplay init APP` and `snapreplay run APP`,"
    " each with --bootstrap-servers HOST:PORT"
)
PORT_FILE = "snapreplay-dev-port"
"""In the data directory: the port of the last time. Kafka ignores files that it does not know."""


def run_dev(data_dir: Path | None, kafka_port: int, serve: Callable[[str], int]) -> int:
    """Run a local broker while `serve`, given its address, blocks; return what `serve` returns.

    Raises:
        LocalBrokerUnavailable: Java, Maven or the jars are missing, or the broker failed.
        UsageError: the port is taken.
    """
    port = kafka_port or _last_port(data_dir)
    try:
        with LocalBroker(data_dir=data_dir, port=port, properties=KEEP_OLD_RECORDS, report=note) as broker:
            servers = broker.bootstrap_servers
            note(f"Kafka:    {servers}" + (f" in {data_dir}" if data_dir else ""))
            if data_dir is not None:
                (data_dir / PORT_FILE).write_text(servers.rpartition(":")[2])
            return serve(servers)
    except ToolsMissing as error:
        error.or_else(INSTEAD)
        raise


def _last_port(data_dir: Path | None) -> int:
    """Return the port of the last `dev` with this directory; 0 if there is none, or if another program listens
    there now."""
    if data_dir is None:
        return 0
    try:
        port = int((data_dir / PORT_FILE).read_text())
    except (OSError, ValueError):
        return 0
    if is_free_soon(port):
        return port
    note(f"Kafka:    port {port} of the last time is taken, another one is used")
    return 0


def serve_app(app: App[Any], settings: Settings, servers: str, partitions: int, http: HttpServer) -> int:
    """Make topics and genesis, then run the service until Ctrl-C or SIGTERM; return its exit code."""
    kafka = settings.kafka | {"bootstrap.servers": servers}
    here = settings.replaced(kafka=kafka)
    asyncio.run(_prepare(app, here, partitions))
    return run(app, here, http=http)


def end_with_parent() -> None:
    """Stop as by SIGTERM when standard input ends, as it does when the parent dies."""

    def wait() -> None:
        with suppress(OSError):
            # Not by sys.stdin: at the end of the process this thread would still hold its lock.
            while os.read(0, 4096):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


async def _prepare(app: App[Any], settings: Settings, partitions: int) -> None:
    cluster = KafkaCluster(settings)
    for line in await ensure_topics(app, settings, cluster, create_io_partitions=partitions):
        note(f"topic:    {line}")
    for line in await init_app(app, settings, cluster):
        note(f"genesis:  {line}")
    # A new broker has no coordinator of groups until the first question. Asked by the service, it logs errors.
    await cluster.member_count(app.app_id)
    name, at = (shlex.quote(app_name(app)), f"--bootstrap-servers {settings.kafka['bootstrap.servers']}")
    for topic_name in app.input_names[:1]:
        note(f"feed it:  snapreplay feed {name} {topic_name} {at}")
    for topic in app.outputs[:1]:
        note(f"watch it: snapreplay tail {name} {topic.name} --follow {at}")


LOOK_S = 0.25

Stamps = dict[Path, tuple[int, int]]


class CodeWatch:
    """The files of an app: its module and those of the same author that it imports, found without running them."""

    def __init__(self, app: str) -> None:
        """Watch the files of `app`, or raise UsageError: there is no such file, and none will be started by a
        change of it."""
        place = app.rpartition(":")[0] or app
        path = Path(place)
        is_file = place.endswith(".py") or "/" in place
        if is_file and not path.is_file():
            raise UsageError(f"app file {path} does not exist")
        self._module = path.stem if is_file else place
        folder = path.resolve().parent if is_file else Path.cwd()
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        self._files = {path.resolve()} if is_file else set(folder.glob("*.py"))

    def look(self) -> Stamps:
        """Look when each file was written, and at its size. A file that cannot be compiled now keeps those that
        were known."""
        with suppress(UsageError):  # the service says what is wrong with it
            self._files |= {Path(file).resolve() for file in own_files([self._module])}
        return {file: _stamp(file) for file in self._files}


def _stamp(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError:  # it is being replaced
        return (0, 0)
    return status.st_mtime_ns, status.st_size


class _Stopped(Exception):
    """Ctrl-C or SIGTERM."""


def keep_running(watch: CodeWatch, command: Sequence[str]) -> int:
    """Run `command` until Ctrl-C or SIGTERM; after each change of the app's files, stop it gracefully and start it
    again. If it ends by itself, wait for the next change. Returns the last exit code.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _Stopped

    former = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    child: subprocess.Popen[bytes] | None = None
    try:
        while True:
            stamps = watch.look()
            # Ctrl-C in the terminal is for this process only: it decides what stops first.
            child = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
            changed = _until_changed(child, watch, stamps)
            note(f"code changed: {', '.join(changed)}; the service starts again with its state")
            _end(child)
    except _Stopped:
        for each in former:
            signal.signal(each, signal.SIG_IGN)  # a second one changes nothing
        return _end(child) if child is not None else 0
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)


def _until_changed(child: subprocess.Popen[bytes], watch: CodeWatch, stamps: Stamps) -> list[str]:
    """Wait for a change; return the names of the files that are other ones now."""
    told = False
    while (now := watch.look()) == stamps:
        if child.poll() is not None and not told:
            told = True
            note(f"the service ended with exit code {child.returncode}; the next change starts it")
        time.sleep(LOOK_S)  # between two looks at the files
    changed = [file.name for file in now if now[file] != stamps.get(file)]
    return sorted(changed)


def _end(child: subprocess.Popen[bytes]) -> int:
    """End gracefully: a last snapshot is written. The service has a deadline of its own."""
    child.terminate()
    code = child.wait()
    if child.stdin is not None:
        child.stdin.close()
    return code


def reloading(app: str) -> Callable[[str], int]:
    """Return what `run_dev` is to serve: `dev` as it was typed again, on the broker that runs already."""

    def serve(servers: str) -> int:
        typed = [each for each in sys.argv[1:] if each != "--reload"]
        at = typed.index("dev") + 1  # behind a `--` there are no options
        words = [*typed[:at], "--on-broker", servers, *typed[at:]]
        return keep_running(watch, [sys.executable, "-m", "snapreplay.api.cli", *words])

    watch = CodeWatch(app)
    return serve
