"""One broker process: its directory, its command line, its life; and the keeper that ends it with this process."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, NoReturn

from snapreplay.app.record import Output
from snapreplay.devbroker import properties
from snapreplay.devbroker.files import KafkaFiles, LocalBrokerFailed, LocalBrokerUnavailable
from snapreplay.devbroker.free_ports import is_free
from snapreplay.errors import SnapreplayError, described
from snapreplay.java import environment
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.admin import KafkaAdmin
from snapreplay.service.kafka.feeding import KafkaFeeder
from snapreplay.service.ports import NewTopic

_ANSWER_DEADLINE_S = 15.0
_LEAVE_DEADLINE_S = 10.0


class KeeperGone(Exception):
    """The keeper ended or does not answer; its child is dead or about to die."""


class KeptProcess:
    """Runs one command at a time under a keeper, and removes `work_dir` at the end.

    May be used from any thread. Every call has a deadline and raises KeeperGone if the keeper is gone.
    """

    def __init__(self, work_dir: Path) -> None:
        self._lock = threading.Lock()
        self._work_dir: Path | None = work_dir
        # as_file: even in a zip archive there is a real file while the interpreter reads it.
        with as_file(files(__package__) / "broker_keeper.py") as script:
            owner = [str(os.getpid()), str(work_dir)]
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script), *owner],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment(),
                # Ctrl-C in a terminal reaches the whole process group; only the owner decides what ends.
                start_new_session=True,
            )
            self._ask({"do": "poll"})

    def run(self, argv: list[str], log_path: Path) -> int:
        """Start the command and end the previous one; its output is appended to `log_path`.

        Returns its process id.
        """
        return int(self._ask({"do": "run", "argv": argv, "log": str(log_path)})["pid"])

    def exit_code(self) -> int | None:
        """Return the exit code (negative: the signal that killed it); None while it runs."""
        return _as_code(self._ask({"do": "poll"})["exit"])

    def end(self, grace_s: float) -> int | None:
        """Send SIGTERM, wait up to `grace_s` seconds, then send SIGKILL (at once if 0); return the exit code."""
        request = {"do": "end", "grace_s": grace_s}
        return _as_code(self._ask(request, grace_s + _ANSWER_DEADLINE_S)["exit"])

    def leave_files(self) -> None:
        self._work_dir = None
        self._ask({"do": "leave"})

    def close(self) -> None:
        """End the keeper, and the command by SIGKILL if it runs. A second call does nothing."""
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self._keeper.wait(_LEAVE_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        if self._work_dir is not None:
            # The keeper has done this, unless somebody killed it.
            shutil.rmtree(self._work_dir, ignore_errors=True)

    def _ask(self, request: dict[str, Any], deadline_s: float = _ANSWER_DEADLINE_S) -> dict[str, Any]:
        with self._lock:
            # A late answer would be taken for the answer to the next request.
            watch = threading.Timer(deadline_s, self._keeper.kill)
            watch.start()
            try:
                answer = self._exchange(json.dumps(request).encode() + b"\n")
            except (OSError, ValueError) as error:  # ValueError: we closed the pipe ourselves
                raise KeeperGone(f"its keeper process has ended ({error})") from error
            finally:
                watch.cancel()
        if "error" in answer:
            raise KeeperGone(f"its keeper process reports {answer['error']}")
        return answer

    def _exchange(self, request: bytes) -> dict[str, Any]:
        stdin, stdout = self._keeper.stdin, self._keeper.stdout
        if stdin is None or stdout is None:
            raise BrokenPipeError("no pipe")
        stdin.write(request)
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise BrokenPipeError("it ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _as_code(answer: object) -> int | None:
    return answer if isinstance(answer, int) else None


_POLL_S = 0.02
_PROBE_S, _DELETE_S = 10.0, 2.0  # a first transaction takes 0.3 s, and up to 3 s on a loaded machine
# How long an orderly stop may take. The JVM needs 0.2 s, and 2 s when it writes a class archive.
_STOP_GRACE_S = 15.0
_ENDED_BY_SIGTERM = 143


class PortTaken(Exception):
    """Another program was quicker to take one of the ports."""


class StartDeadline:
    """The time that a start may still take, unless it is not wanted any more."""

    def __init__(self, deadline_s: float, abandoned: threading.Event) -> None:
        self._deadline = time.monotonic() + deadline_s
        self._abandoned = abandoned

    @property
    def left_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def ends(self) -> bool:
        """Wait 20 ms; True if there is no point in waiting longer."""
        return self._abandoned.wait(_POLL_S) or not self.left_s


class LocalNode:
    """A broker and controller in one JVM on 127.0.0.1, under a keeper."""

    def __init__(self, kafka: KafkaFiles, address: properties.Node, heap_mb: int) -> None:
        self.address = address
        self._kafka = kafka
        self._heap_mb = heap_mb
        self._pid: int | None = None
        self._argv: list[str] = []
        self._log_start = 0
        self._ended_by_us = True
        self._keep_log = False
        self._data_dir: Path | None = None
        self._work_dir = Path(tempfile.mkdtemp(prefix="snapreplay-broker-"))
        self._made_archive = self._work_dir / "classes.jsa"
        self._process = _keeper_for(self._work_dir)

    @property
    def bootstrap_server(self) -> str:
        """The address for clients, host:port; the same over all restarts."""
        return self.address.server

    @property
    def pid(self) -> int:
        """The process id of the JVM; a new one after each restart."""
        if self._pid is None:
            raise RuntimeError("this broker was not started")
        return self._pid

    @property
    def log_path(self) -> Path:
        """The broker's log; removed at the end unless the broker failed."""
        return self._work_dir / "broker.log"

    def prepare(
        self, nodes: Sequence[properties.Node], cluster_id: str, data_dir: Path | None, extra: Mapping[str, str]
    ) -> None:
        """Format the data directory (None: a temporary one) and write the settings."""
        self._data_dir = data_dir
        used = data_dir or self._work_dir / "data"
        self._kafka.format(used, self.address.node_id, cluster_id)
        settings = self._work_dir / "server.properties"
        values = properties.server_properties(self.address, nodes, used, extra)
        settings.write_text(properties.as_file(values))
        archive = self._kafka.class_archive
        if archive.exists():
            classes = f"-XX:SharedArchiveFile={archive}"
        else:
            classes = f"-XX:ArchiveClassesAtExit={self._made_archive}"
        performance = os.environ.get("KAFKA_JVM_PERFORMANCE_OPTS") or properties.QUICK_START
        flags = [*properties.jvm_flags(self._work_dir, self._heap_mb, performance), classes]
        java, class_path = str(self._kafka.java), self._kafka.class_path
        self._argv = [java, *flags, "-cp", class_path, "kafka.Kafka", str(settings)]

    def launch(self) -> None:
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        try:
            self._pid = self._process.run(self._argv, self.log_path)
        except KeeperGone as error:
            self._fail(str(error))
        self._ended_by_us = False

    def wait_started(self, patience: StartDeadline) -> None:
        """Wait until the broker's log says that it has started. Raises PortTaken or LocalBrokerFailed.

        An open port proves nothing: another program may hold it while the JVM is still starting.
        """
        while not says_started(self.log_path, self._log_start):
            self.check_alive()
            if patience.ends():
                self._fail("it did not start in time")

    def wait_ready(self, patience: StartDeadline) -> None:
        """Wait until a transaction has been committed. Raises PortTaken or LocalBrokerFailed."""
        while True:
            try:
                return _in_thread(_commit_one, self.bootstrap_server, min(_PROBE_S, patience.left_s))
            except (SnapreplayError, TimeoutError) as error:
                self.check_alive()
                if patience.ends():
                    self._fail(f"it committed no transaction ({described(error)})")

    def kill(self, grace_s: float = 0.0) -> None:
        """Send SIGKILL, as in a crash, at once or after a SIGTERM and `grace_s` seconds of patience; return when the
        process is gone. The data stays."""
        self._ended_by_us = True
        try:
            self._process.end(grace_s)
        except KeeperGone as error:
            self._fail(str(error))

    def restart(self, patience: StartDeadline) -> None:
        """Kill the broker if it runs; start it on the same port and data; return when ready."""
        self.kill()
        while True:
            try:
                self.launch()
                self.wait_started(patience)
                return self.wait_ready(patience)
            except PortTaken:
                # It may be taken only for a moment, and the clients know no other port.
                while not (is_free(self.address.port) and is_free(self.address.controller_port)):
                    if patience.ends():
                        self._fail("another program still uses its port")

    def close(self, *, orderly: bool = True) -> None:
        """Stop the broker and remove what is temporary.

        Orderly: SIGTERM, 15 s of patience, then SIGKILL. Otherwise SIGKILL at once.
        The log is kept if the broker failed or ended by itself.
        """
        try:
            ended_by_itself = not self._ended_by_us and self._process.exit_code() is not None
            if self._keep_log or ended_by_itself:
                self._process.leave_files()
            code = self._process.end(_STOP_GRACE_S if orderly else 0.0)
            if code == _ENDED_BY_SIGTERM and self._made_archive.exists():
                self._kafka.keep_class_archive(self._made_archive)
            if self._data_dir is None:
                shutil.rmtree(self._work_dir / "data", ignore_errors=True)
        except KeeperGone:
            pass  # then the broker is gone, too
        finally:
            self._process.close()

    def check_alive(self) -> None:
        try:
            code = self._process.exit_code()
        except KeeperGone as error:
            self._fail(str(error))
        if code is None:
            return
        if port_was_taken(self.log_path, self._log_start):
            self._ended_by_us = True  # this log is of no use
            raise PortTaken
        self._fail(f"it ended with exit code {code}")

    def _fail(self, what: str) -> NoReturn:
        """Raise; close() will then leave the log."""
        self._keep_log = True
        hint = f"read its log, {self.log_path}. It ends with:\n{last_lines(self.log_path)}"
        cause = known_cause(self.log_path, self._log_start)
        message = f"the local broker failed: {what}" + (f": {cause}" if cause else "")
        raise LocalBrokerFailed(message, hint, self.log_path)


def _keeper_for(work_dir: Path) -> KeptProcess:
    try:
        return KeptProcess(work_dir)
    except (OSError, KeeperGone) as error:
        shutil.rmtree(work_dir, ignore_errors=True)
        message = f"the local broker cannot be started: its keeper process did not start ({error})"
        hint = "if `ulimit -u` is reached, raise it or end processes of this user"
        raise LocalBrokerUnavailable(message, hint) from error


def _in_thread(ask: Callable[[str, float], Coroutine[Any, Any, None]], bootstrap_server: str, within_s: float) -> None:
    """Ask in a thread of its own: the caller's may run an event loop, which waits."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(ask(bootstrap_server, within_s))).result()


async def _commit_one(bootstrap_server: str, within_s: float) -> None:
    """Commit one transaction of one record, in a topic of its own. An open port and a list of brokers say less: the
    coordinator creates its topic at first use, and until then every producer would fail.

    Raises:
        SnapreplayError, TimeoutError: none was committed.
    """
    settings, topic = Settings(kafka={"bootstrap.servers": bootstrap_server}), f"__snapreplay_probe-{uuid.uuid4().hex}"
    admin, feeder = KafkaAdmin(settings), KafkaFeeder(settings, topic)
    try:
        async with asyncio.timeout(within_s):
            await admin.create_topics([NewTopic(topic, 1)])
            await feeder.start()
            await feeder.feed([Output(topic, None, b"probe", None, False, None)])
    finally:
        await feeder.close()
        with contextlib.suppress(SnapreplayError, TimeoutError):  # it says nothing of the transaction
            async with asyncio.timeout(_DELETE_S):
                await admin.delete_topics([topic])


_TAIL_LINES = 12
_TAIL_BYTES = 65_536
_STARTED = "Kafka Server started"
_PORT_TAKEN = "Address already in use"
_KNOWN_CAUSES = {
    _PORT_TAKEN: "the port is taken by another program",
    r"Invalid cluster\.id|InconsistentClusterId|Stored node id": "the data directory belongs to another broker",
}
"""Pattern in the log → what it means to the user. The other errors of a broker say themselves what is wrong."""


def known_cause(log_path: Path, since: int = 0) -> str:
    """Return one clause that names the cause of the failure that the log, from byte `since` on, tells of; else ""."""
    text = _end_of(log_path, since)
    return next((cause for pattern, cause in _KNOWN_CAUSES.items() if re.search(pattern, text)), "")


def last_lines(log_path: Path) -> str:
    """Return the last lines of the log, without stack frames and what the JVM says of its class archive, and without
    INFO lines if there are others."""
    lines = _end_of(log_path).splitlines()
    lines = [line for line in lines if not re.match(r"\s+(at |\.\.\. \d+ more)|.*\[cds", line)]
    telling = [line for line in lines if " INFO " not in line]
    return "\n".join((telling or lines)[-_TAIL_LINES:])


def port_was_taken(log_path: Path, since: int = 0) -> bool:
    """Say whether the log, from byte `since` on, says that the port was taken."""
    return _PORT_TAKEN in _end_of(log_path, since)


def says_started(log_path: Path, since: int = 0) -> bool:
    """Say whether the log, from byte `since` on, says that the broker has started."""
    return _STARTED in _end_of(log_path, since)


def _end_of(log_path: Path, since: int = 0) -> str:
    try:
        with log_path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(since, size - _TAIL_BYTES))
            return log.read().decode("utf-8", "replace")
    except OSError:
        return ""
