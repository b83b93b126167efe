"""The files that a broker is started from, and its data directory; and the errors of the local broker, worded for the
person who typed the command."""

import base64
import fcntl
import hashlib
import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from snapreplay.devbroker.free_ports import patiently
from snapreplay.errors import UsageError

_META = "meta.properties"
# A running broker holds a lock on it.
_LOCK = ".lock"
_IN_USE = "another broker uses this data directory"


class LocalBrokerUnavailable(UsageError):
    """The local broker cannot be started. No Java 17 or newer: `apt-get install default-jre-headless`. No Maven to
    fetch the jars with: `apt-get install maven`, or set `SNAPREPLAY_JARS_DIR` to a directory with the jars from another
    machine. The data directory cannot be used: name one that this user may write to, and that no other broker uses.
    Other programs took its ports: `ss -ltnp` lists them.

    Safe: No app was started, and a data directory stays as it is.
    """

    def __init__(self, message: str, hint: str, **facts: object) -> None:
        super().__init__(message, hint=hint, **facts)

    def __str__(self) -> str:
        # Two lines: a hint may be long and contain the end of a log.
        return f"{self.message}\n{self.hint}"


class ToolsMissing(LocalBrokerUnavailable):
    """Java, Maven or the jars are missing."""


class LocalBrokerFailed(LocalBrokerUnavailable):
    """The broker ended after its start, or was not ready within its deadline.

    Safe: No app was started. A data directory that you named is kept. A temporary one is deleted, except the log.

    Attributes:
        log_path: the broker's whole log; it is kept, a temporary data directory is not.
    """

    def __init__(self, message: str, hint: str, log_path: Path) -> None:
        super().__init__(message, hint)
        self.log_path = log_path


@dataclass(frozen=True, slots=True)
class KafkaFiles:
    """The files of a broker; `java` is the command, `root` the directory that jars.py fills."""

    java: Path
    root: Path

    @property
    def class_path(self) -> str:
        """The class path for the JVM's -cp, in a fixed order."""
        return ":".join(str(jar) for jar in sorted((self.root / "lib").glob("*.jar")))

    @property
    def formatted_dir(self) -> Path:
        """An empty data directory as the storage tool leaves it."""
        return self.root / "formatted"

    @property
    def class_archive(self) -> Path:
        """The archive of loaded classes for exactly this Java; another one would ignore it."""
        command = self.java.resolve()
        state = command.stat()
        identity = f"{command} {state.st_size} {state.st_mtime_ns}"
        return self.root / f"classes-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.jsa"

    def keep_class_archive(self, made: Path) -> None:
        """Take over the archive that a broker wrote when it ended, if it did."""
        arriving = self.class_archive.with_suffix(f".{os.getpid()}")
        try:
            shutil.move(made, arriving)
            arriving.rename(self.class_archive)
        except OSError:
            # The disk may be full. Without the archive the next start only takes a second longer.
            arriving.unlink(missing_ok=True)

    def format(self, data_dir: Path, node_id: int, cluster_id: str) -> None:
        """Make `data_dir` an empty data directory of this node, unless it is one already.

        Raises LocalBrokerUnavailable: it cannot be made or written, or a running broker uses it.
        """
        _check_name(data_dir)
        try:
            _check_unused(data_dir)
            self._format(data_dir, node_id, cluster_id)
        except OSError as error:
            raise _cannot_keep(data_dir, str(error.strerror)) from error

    def _format(self, data_dir: Path, node_id: int, cluster_id: str) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        if (data_dir / _META).exists():
            return
        for source in self.formatted_dir.iterdir():
            if source.name != _META:
                shutil.copyfile(source, data_dir / source.name)
        ids = {"node.id": str(node_id), "cluster.id": cluster_id, "directory.id": new_id()}
        lines = (self.formatted_dir / _META).read_text().splitlines()
        fields = [line.partition("=") for line in lines]
        text = "".join(f"{key}{equals}{ids.get(key, value)}\n" for key, equals, value in fields)
        # Last: with this file the directory counts as formatted.
        (data_dir / _META).write_text(text)


def _check_name(data_dir: Path) -> None:
    if "," in str(data_dir):
        raise _cannot_keep(data_dir, "Kafka reads a comma as the end of a directory's name")
    if any("\ud800" <= char <= "\udfff" for char in str(data_dir)):
        raise _cannot_keep(data_dir, "its name is not UTF-8, so Java would open another directory")


def _check_unused(data_dir: Path) -> None:
    # A second broker opens the metadata log before it asks for the lock, and may write to it.
    if not patiently(lambda: _is_unused(data_dir / _LOCK)):
        raise _cannot_keep(data_dir, _IN_USE)


def _is_unused(lock: Path) -> bool:
    if not lock.exists():
        return True
    with lock.open("rb+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
    return True


def _cannot_keep(data_dir: Path, reason: str) -> LocalBrokerUnavailable:
    # A name that is not valid text is shown with escapes.
    said = str(data_dir).encode("utf-8", "backslashreplace").decode()
    message = f"the local broker cannot keep its data in {said}: {reason}"
    hint = "name a directory that this user may write to"
    if reason == _IN_USE:
        hint = "stop that broker, or name another directory"
    return LocalBrokerUnavailable(message, hint, data_dir=said)


def new_id() -> str:
    """Draw a random id in Kafka's form: 16 bytes, base64 for URLs, no padding, no leading dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
