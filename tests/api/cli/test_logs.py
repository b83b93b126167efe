"""The foreground log."""

import fcntl
import io
import logging
import os
import subprocess
import sys
import termios
import threading
import time
import weakref
from array import array
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import httpx2
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from snapreplay.api.cli import logs
from snapreplay.api.cli.logs import LINE_BYTES_MAX, JsonFormatter, LineFormatter, Verbosity, Writer, configure
from tests.support.deadlines import scaled
from tests.support.loggers import loggers_put_back
from tests.support.waiting import eventually


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """Puts the loggers back as they were. The client's goes by the root logger, after any command."""
    with loggers_put_back():
        client = logging.getLogger("aiokafka")
        client.handlers[:], client.propagate = [], True
        yield


@pytest.mark.parametrize(("level", "seen"), [(Verbosity.INFO, False), (Verbosity.DEBUG, True)])
def test_libraries_are_quiet_unless_debugging(capsys, level, seen):
    """The client's news is noise, its warnings are not."""
    configure(level)
    logging.getLogger("aiokafka.consumer").info("news")
    logging.getLogger("aiokafka.consumer").warning("warned")
    logging.getLogger().handlers[0].flush()
    written = capsys.readouterr().err
    assert ("news" in written) is seen
    assert "warned" in written


def test_lines_carry_utc_time_level_and_name_wherever_the_machine_is(capsys, monkeypatch):
    """On standard error; lines of processes in different time zones can be put in one order."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        configure(Verbosity.INFO)
        logging.getLogger("snapreplay").info("live")
        logging.getLogger().handlers[0].flush()
    finally:
        monkeypatch.undo()
        time.tzset()
    captured = capsys.readouterr()
    assert (captured.out, captured.err[10], captured.err[23]) == ("", "T", "Z")
    assert captured.err.endswith("INFO    snapreplay: live\n")
    stamp = datetime.fromisoformat(captured.err.split()[0])
    assert abs(stamp.timestamp() - time.time()) < 60


ROOT = Path(__file__).resolve().parents[3]

FORGED = "2026-11-23T05:00:00.000Z ERROR   snapreplay: LOST: everything"


def record(message: str, error: BaseException | None = None) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("snapreplay", logging.ERROR, "", 0, message, (), info)


def formatted(message: str, error: BaseException | None = None) -> str:
    return LineFormatter("%(levelname)s %(name)s: %(message)s").format(record(message, error))


@pytest.mark.parametrize("broken", ["\n", "\r\n", "\u2028", "\x85", "\x1b[2K\r", "\x0b"])
def test_no_message_begins_a_line_of_its_own(broken):
    """Nor does it change what a terminal shows. It stays readable."""
    line = formatted(f"cannot decode 'a{broken}{FORGED}'")
    assert line.splitlines() == [line]
    assert "\x1b" not in line
    assert FORGED in line


def test_no_exception_begins_a_line_of_its_own():
    """A traceback has lines, each of them indented; the text of the exception is one of them."""
    try:
        raise ValueError(f"bad value\n{FORGED}")
    except ValueError as error:
        lines = formatted("the handler failed", error).split("\n")
    assert lines[0] == "ERROR snapreplay: the handler failed"
    assert all(line.startswith("  | ") for line in lines[1:])
    assert any("ValueError: bad value" in line for line in lines)


def kept_bytes(text: str, letter: str) -> int:
    shown = {"\n": "\\n"}.get(letter, letter)
    return text.partition(": ")[2].partition(" … ")[0].count(shown) * len(letter.encode())


@pytest.mark.parametrize("letter", ["x", "é", "\n"])
def test_a_line_is_bounded(letter):
    """And says how much it left out; the same for the text of an exception."""
    text = formatted(letter * 1_000_000)
    assert len(text.encode()) < LINE_BYTES_MAX + 100
    left_out = int(text.rpartition(" … ")[2].split()[0].replace(",", ""))
    assert left_out == 1_000_000 * len(letter.encode()) - kept_bytes(text, letter)
    text = formatted("failed", ValueError(letter * 1_000_000))
    assert max(len(line.encode()) for line in text.split("\n")) < LINE_BYTES_MAX + 100
    assert text.endswith(" more bytes")


@given(st.text(st.characters()))
@example("half a pair: \ud800")
@example(f"cannot decode 'a\n\u2028\x85{FORGED}'")
def test_json_is_one_line_that_every_reader_takes(text):
    """Also where a message or an exception holds what is no character. The strict reader refuses those."""
    line = JsonFormatter("ledger").format(record(text, ValueError(text)))
    assert line.isascii()
    assert line.splitlines() == [line]
    said = msgspec.json.decode(line)
    escaped = text.encode("utf-8", "backslashreplace").decode()
    assert said["message"] == escaped
    assert escaped in said["exception"]
    assert (said["app"], said["level"], said["logger"]) == ("ledger", "ERROR", "snapreplay")
    assert abs(datetime.fromisoformat(said["time"]).timestamp() - time.time()) < 60


def test_json_names_the_partition():
    """By the template of the message, never by what is quoted in it."""

    def partition(template, *values):
        made = logging.LogRecord("snapreplay", logging.INFO, "", 0, template, values, None)
        return msgspec.json.decode(JsonFormatter("ledger").format(made)).get("partition")

    assert partition("partition %d: %s", 7, "x") == 7
    assert partition("%s: the standby of partition %d failed", "x", 3) == 3
    assert partition("%s", "partition 5") is None


@pytest.mark.parametrize("letter", ["x", "é", "\n", "\ud800"])
def test_json_is_bounded(letter):
    """And says how much it left out."""
    line = JsonFormatter("ledger").format(record(letter * 1_000_000))
    assert len(line) < LINE_BYTES_MAX + 300
    assert msgspec.json.decode(line)["message"].endswith(" more bytes")


@pytest.fixture
def pipe(request: pytest.FixtureRequest) -> Iterator[tuple[int, Writer]]:
    """The end to read, and a writer to the other end, which blocks unless the test says otherwise."""
    reading, writing = os.pipe()
    os.set_blocking(writing, getattr(request, "param", True))
    with os.fdopen(writing, "w") as stream:
        writer = Writer(stream)
        writer.setFormatter(LineFormatter("%(message)s"))
        yield reading, writer
        os.set_blocking(reading, False)
        eventually(lambda: drained(reading) == b"" and writer.is_idle, "written")
    os.close(reading)


def drained(reading: int) -> bytes:
    read = b""
    while True:
        try:
            read += os.read(reading, 1 << 20)
        except BlockingIOError:
            return read


def test_whoever_logs_never_waits_for_a_reader(pipe):
    """What does not fit is dropped, and the count is written once there is a reader, though nothing more is logged."""
    reading, writer = pipe
    began = time.monotonic()
    for number in range(5_000):
        writer.emit(record(f"{number:05} {'x' * 90}"))
    assert time.monotonic() - began < scaled(10)
    os.set_blocking(reading, False)
    read = b""

    def all_told() -> bool:
        nonlocal read
        read += drained(reading)
        lines = read.decode().splitlines()
        kept = [int(line[:5]) for line in lines if " xxx" in line]
        told = [line.split()[-11] for line in lines if line.endswith("because this log was not read fast enough")]
        assert kept == sorted(kept)
        return bool(told) and len(kept) + sum(int(each.replace(",", "")) for each in told) == 5_000

    eventually(all_told, "it says how many")


def held_bytes(reading: int) -> int:
    held = array("i", [0])
    fcntl.ioctl(reading, termios.FIONREAD, held)
    return held[0]


def test_the_end_of_a_process_waits_for_the_lines_that_are_left(pipe):
    """Also when lines were dropped: the thread that writes counts them while the end waits for it."""
    reading, writer = pipe
    for number in range(5_000):
        writer.emit(record(f"{number:05} {'x' * 90}"))
    assert writer.dropped
    os.set_blocking(reading, False)
    ended = threading.Event()

    def read_on() -> None:
        while not ended.wait(0.001):
            drained(reading)

    reader = threading.Thread(target=read_on)
    reader.start()
    logging.shutdown([weakref.ref(writer)])
    ended.set()
    reader.join()
    assert (writer.dropped, writer.is_idle) == (0, True)


def test_a_count_that_cannot_be_written_is_reported_later():
    """It is not lost with the line that was to tell it."""

    class Full(io.StringIO):
        refused = 0

        def write(self, text):
            if "dropped" in text and not self.refused:
                self.refused += 1
                raise OSError
            return super().write(text)

    writer = Writer(stream := Full())
    writer.dropped = 7
    writer.emit(record("first"))
    eventually(lambda: stream.refused == 1, "refused")
    writer.emit(record("second"))
    eventually(lambda: "7 lines dropped" in stream.getvalue(), "told")


@pytest.mark.parametrize("pipe", [False], indirect=True)
def test_a_pipe_that_does_not_block_loses_nothing(pipe):
    """Another process may have set it so, for all who share it. A line is longer than what fits."""
    reading, writer = pipe
    for number in range(100):
        writer.emit(record(f"{number:05} {'x' * 9_000}"))
    os.set_blocking(reading, False)
    read = b""

    def all_read() -> bool:
        nonlocal read
        read += drained(reading)
        return b"00099 " in read and read.endswith(b"\n")

    eventually(all_read, "all lines")
    assert [len(line) for line in read.splitlines()] == [9_006] * 100


def test_a_full_disk_ends_nothing(monkeypatch):
    """/dev/full refuses every write; the lines count as dropped."""
    monkeypatch.setattr(logs, "RETRY_SECONDS", 0.01)
    with open("/dev/full", "w") as stream:  # noqa: PTH123 - no file that is opened to be read
        writer = Writer(stream)
        for number in range(3):
            writer.emit(record(str(number)))
        eventually(lambda: writer.dropped == 3, "all are dropped")
        monkeypatch.setattr(writer, "_stream", other := io.StringIO())
        writer.emit(record("again"))
        eventually(lambda: "3 lines dropped" in other.getvalue(), "told")
    assert other.getvalue().startswith("again\n")


def test_a_forked_process_logs_by_itself():
    """It has no thread that would write its lines."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        writer = Writer(stream)
        pid = os.fork()
        if pid == 0:
            writer.emit(record("from the worker"))
            os._exit(0)
        os.waitpid(pid, 0)
    assert os.read(reading, 1000) == b"from the worker\n"
    os.close(reading)


def answers(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/startupz", trust_env=False).status_code == 200
    except httpx2.TransportError:
        return False


def runs_and_stops(stderr: int, port: int) -> None:
    """`snapreplay run` without a broker, which logs that again and again, answers; SIGTERM ends it with 0."""
    command = [sys.executable, "-m", "snapreplay.api.cli", "run", "examples/flights.py"]
    options = ["--bootstrap-servers", "127.0.0.1:1", "--log-level", "debug", "--http-port", str(port)]
    with subprocess.Popen([*command, *options], stderr=stderr, cwd=ROOT) as process:
        os.close(stderr)
        eventually(lambda: answers(port), "it answers")
        process.terminate()
        assert process.wait(scaled(40)) == 0


@pytest.mark.whole
def test_a_service_whose_log_has_no_reader_runs_and_stops(free_port):
    """Its log has no room from the first line on, or is on a full disk."""
    reading, writing = os.pipe()
    os.write(writing, bytes(fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)))
    runs_and_stops(writing, free_port)
    assert held_bytes(reading) == 4096
    os.close(reading)
    runs_and_stops(os.open("/dev/full", os.O_WRONLY), free_port)


def test_every_line_of_a_service_is_json(free_port):
    """Announcement, log and the error at the end: a service without a broker, and one whose port is taken."""
    command = [sys.executable, "-m", "snapreplay.api.cli", "run", "examples/flights.py", "--log-format", "json"]
    command += ["--bootstrap-servers", "127.0.0.1:1", "--http-port", str(free_port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, cwd=ROOT) as process:
        eventually(lambda: answers(free_port), "it answers")
        refused = subprocess.run(command, stderr=subprocess.PIPE, cwd=ROOT, timeout=scaled(40), check=False)
        process.terminate()
        _, written = process.communicate(timeout=scaled(40))
    said = [msgspec.json.decode(line) for line in written.splitlines()]
    assert {each["app"] for each in said} == {"flights"}
    assert any(each["message"].startswith("HTTP API: ") for each in said)
    assert any(each["message"] == "stopped" for each in said)
    (error,) = [msgspec.json.decode(line) for line in refused.stderr.splitlines()]
    assert str(free_port) in error["message"]
    assert refused.returncode == 2
