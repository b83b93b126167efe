"""The log of a service that runs in the foreground: standard error, one line per event, UTC, as text or as JSON."""

from __future__ import annotations

import json
import logging
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from types import TracebackType
from typing import TextIO

from snapreplay.counted import counted
from snapreplay.service.runtime.tasks import current_app_id, with_app

log = logging.getLogger("snapreplay")

LINE_BYTES_MAX = 32 * 1024
LINES_MAX = 4096
RETRY_SECONDS = 1.0
FLUSH_SECONDS = 1.0
CONTINUED = "  | "

# Else a message could begin a line of its own, which looks like one of the service, or change what a terminal shows.
_CONTROLS = {each: f"\\x{each:02x}" for each in (*range(0x20), *range(0x7F, 0xA0)) if each != ord("\t")} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


def one_line(text: str) -> str:
    """Escape line breaks and control characters, and cut the text off where it is too long."""
    return _bounded(text, escaped, lambda line: len(line.encode()))


def escaped(text: str) -> str:
    """Escape line breaks and control characters."""
    return _characters(text.translate(_CONTROLS))


def _characters(text: str) -> str:
    """Escape what is no character, such as half of a surrogate pair: there are readers that refuse it."""
    return text.encode("utf-8", "backslashreplace").decode()


def _bounded(text: str, shown: Callable[[str], str], bytes_of: Callable[[str], int]) -> str:
    kept = text[:LINE_BYTES_MAX]
    while bytes_of(line := shown(kept)) > LINE_BYTES_MAX:
        kept = kept[: len(kept) // 2]
    return line + _left_out(text[len(kept) :])


def _left_out(text: str) -> str:
    more_bytes = len(text.encode("utf-8", "backslashreplace"))
    return f" … {more_bytes:,} more bytes" if more_bytes else ""


class LineFormatter(logging.Formatter):
    """One line per event. A traceback has lines of its own, all of them indented by `CONTINUED`."""

    def format(self, record: logging.LogRecord) -> str:
        record.message = one_line(with_app(record.getMessage()))
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        lines = [self.formatMessage(record)]
        if record.exc_info:
            text = self.formatException(record.exc_info)
            kept, left_out = text[:LINE_BYTES_MAX], _left_out(text[LINE_BYTES_MAX:])
            lines += [one_line(each) for each in kept.split("\n")]
            lines[-1] += left_out
        return f"\n{CONTINUED}".join(lines)


class JsonFormatter(logging.Formatter):
    """One JSON object per event, on one line of ASCII, with any text."""

    def __init__(self, app_id: str) -> None:
        """Take the process's only app; empty: it has several, and the context of a line says which one it is about."""
        super().__init__()
        self._app_id = app_id

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "app": current_app_id() or self._app_id,
            "message": _text(record.getMessage()),
        }
        if (partition := _partition_of(record)) is not None:
            said["partition"] = partition
        if record.exc_info:
            said["exception"] = _text(self.formatException(record.exc_info))
        return json.dumps(said)


def _text(text: str) -> str:
    """Cut it off where its JSON is too long."""
    return _bounded(text, _characters, lambda line: len(json.dumps(line)))


def _partition_of(record: logging.LogRecord) -> int | None:
    """Return the state partition that the record is about. Every message that names one has it in its template."""
    before, found, _ = str(record.msg).partition("partition %d")
    if not found or not isinstance(record.args, tuple):
        return None
    value = record.args[before.count("%")]
    return value if isinstance(value, int) else None


def _count_record(dropped: int) -> logging.LogRecord:
    text = f"{counted(dropped, 'line')} dropped, because this log was not read fast enough"
    return logging.LogRecord("snapreplay.log", logging.WARNING, "", 0, text, None, None)


class Writer(logging.Handler):
    """Hands its lines to a thread. Logging never waits: without a reader, lines are dropped, and a line says how
    many as soon as there is a reader again."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[bytes] = queue.Queue(LINES_MAX)
        self._is_forked = False
        self._counting = threading.Lock()  # `logging.shutdown` holds the handler's own while it waits for the thread
        self.dropped = 0
        """Lines that were lost, and that no line has counted yet."""
        threading.Thread(target=self._write, name="snapreplay-log", daemon=True).start()
        os.register_at_fork(after_in_child=self._write_directly)

    @property
    def is_idle(self) -> bool:
        return not self._lines.unfinished_tasks

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._line(record)
        except Exception:  # noqa: BLE001 - a line that cannot be formatted must not end the program
            self.handleError(record)
            return
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._count(1)
        if self._is_forked:
            self._write_whole(self._lines.get())

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode("utf-8", "backslashreplace")

    def flush(self) -> None:
        """Wait until everything is written, for at most a second."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: self.is_idle, FLUSH_SECONDS)

    def close(self) -> None:
        """Write what is left, at the end of the process."""
        self.flush()
        super().close()

    def _write(self) -> None:
        while True:
            if not self._write_whole(self._lines.get()):
                self._count(1)
                time.sleep(RETRY_SECONDS)  # a full disk: the queue fills meanwhile
                self._lines.task_done()
                continue
            dropped = self.dropped if self._lines.qsize() < LINES_MAX // 2 else 0
            if dropped and self._write_whole(self._line(_count_record(dropped))):
                self._count(-dropped)
            self._lines.task_done()

    def _count(self, lines: int) -> None:
        with self._counting:
            self.dropped += lines

    def _write_whole(self, line: bytes) -> bool:
        """Write a line; say whether it was written: the disk may be full, or the other end closed."""
        try:
            file = self._stream.fileno()
        except (OSError, ValueError):  # closed, or not a file
            file = None
        try:
            if file is None:
                self._stream.write(line.decode())
            while line and file is not None:
                try:
                    line = line[os.write(file, line) :]
                except BlockingIOError:  # another process has made it so, for all who share it
                    room = select.poll()
                    room.register(file, select.POLLOUT)
                    room.poll()
        except (OSError, ValueError):
            return False
        return True

    def _write_directly(self) -> None:
        """Write without the thread, which a forked process does not have."""
        self._lines, self._is_forked = queue.Queue(LINES_MAX), True


_QUIET = ("aiokafka", "asyncio", "kafka", "uvicorn")  # libraries: their warnings are enough


class Verbosity(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """The form of the log: lines for people, or JSON for programs."""

    TEXT = "text"
    JSON = "json"


def configure(level: Verbosity, form: LogFormat = LogFormat.TEXT, app_id: str = "") -> None:
    """Set up the root logger; libraries stay at warning unless `level` is debug."""
    formatter: logging.Formatter
    if form is LogFormat.JSON:
        formatter = JsonFormatter(app_id)
        sys.excepthook = _log_defect
        logging.captureWarnings(True)
    else:
        formatter = LineFormatter("%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s")
        formatter.converter = time.gmtime
        formatter.datefmt = "%Y-%m-%dT%H:%M:%S"
    handler = Writer(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if level is not Verbosity.DEBUG:
        for name in _QUIET:
            logging.getLogger(name).setLevel(logging.WARNING)


def _log_defect(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    log.critical("ended by a defect", exc_info=(kind, error, trace))


def is_json() -> bool:
    """Say whether standard error is a log of JSON objects, into which no other line belongs."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)
