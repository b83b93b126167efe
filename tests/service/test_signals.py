"""Signals of a process that runs a service, also while something blocks its loop."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.deadlines import scaled
from tests.support.waiting import eventually

PROGRAM = """
    import asyncio, ctypes, logging, multiprocessing, os, signal, sys, time
    from snapreplay.service.signals import Signals

    logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
    limit, blocks = float(sys.argv[1]), sys.argv[2]
    mutex, lock = ctypes.create_string_buffer(256), ctypes.CDLL(None).pthread_mutex_lock  # zeros: it is not locked

    if blocks == "log":
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        try:
            while True:
                os.write(writing, bytes(4096))
        except BlockingIOError:
            os.set_blocking(writing, True)
        logging.getLogger().handlers[0].setStream(os.fdopen(writing, "w"))

    async def main():
        stopped = asyncio.Event()
        with Signals(asyncio.get_running_loop(), stopped.set, limit) as signals:
            if blocks == "fork":
                worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(300,))
                worker.start()
                print(worker.pid, flush=True)
            if blocks == "workers that end at once":
                signal.alarm(60)  # ends this program if a worker does not end
                for _ in range(20):
                    if (worker := os.fork()) == 0:
                        time.sleep(300)
                    os.kill(worker, signal.SIGTERM)
                    assert os.WTERMSIG(os.waitpid(worker, 0)[1]) == signal.SIGTERM
                signal.alarm(0)
            if blocks == "a fork that leaves":
                if os.fork() == 0:
                    signals.__exit__(None, None, None)
                    os._exit(0)
                os.wait()
            print("ready", flush=True)
            if blocks == "handler":
                on_payment()
            if blocks == "C":
                in_c()
            if blocks == "another handler of the loop":
                asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, print)
            await stopped.wait()
            if blocks in ("stop", "log"):
                await asyncio.create_task(asyncio.sleep(300), name="partition-3")

    def on_payment():
        time.sleep(300)

    def in_c():
        lock(mutex)
        lock(mutex)

    asyncio.run(main())
    print("stopped", flush=True)
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the program above, with a limit and with what blocks it, and waits until it is ready."""
    started: list[subprocess.Popen[str]] = []

    def begin(limit: float = 60, blocks: str = "nothing", **options: object) -> subprocess.Popen[str]:
        process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PROGRAM), str(limit), blocks],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,  # type: ignore[call-overload]
        )
        started.append(process)
        if blocks != "fork":
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_graceful_stop_is_logged(start, name):
    """With a line, and exit code 0. A second signal is logged, too."""
    process = start()
    process.send_signal(signal.Signals[name])
    out, log = process.communicate(timeout=scaled(30))
    assert (process.returncode, out) == (0, "stopped\n")
    assert f"INFO {name}: stops gracefully, within 60.0 s" in log
    assert log.count(name) == 1


@pytest.mark.parametrize(
    ("blocks", "culprit"),
    [
        ("handler", r"thread MainThread: .*on_payment"),
        ("C", r"thread MainThread: .*in_c"),
        ("stop", r"task partition-3: "),
    ],
)
def test_a_stop_that_does_not_end_is_ended(start, blocks, culprit):
    """By a thread, with exit code 6, a line, and what every thread and task did."""
    process = start(2, blocks)
    eventually(lambda: _state(process.pid) == "S", "it is blocked")
    process.send_signal(signal.SIGTERM)
    out, log = process.communicate(timeout=scaled(30))
    assert (process.returncode, out) == (6, "")
    assert "SIGTERM: stops gracefully, within 2.0 s" in log
    assert "CRITICAL not stopped within timeouts.shutdown_ms + 2 s" in log
    assert re.search(culprit, log)


def test_what_it_does_is_logged_on_demand(start):
    """Although a handler blocks the loop; the process continues."""
    process = start(0.2, "handler")
    process.send_signal(signal.SIGUSR1)
    lines: list[str] = []
    while not lines or not lines[-1].startswith("WARNING task "):
        lines.append(process.stderr.readline())
    assert lines[0] == "WARNING SIGUSR1: what every thread and task does\n"
    assert any(line.startswith("WARNING thread MainThread: ") for line in lines)
    assert process.poll() is None


def test_a_handler_of_the_loop_does_not_make_it_deaf(start):
    """The loop takes the wakeup file for its own handlers."""
    process = start(blocks="another handler of the loop")
    process.send_signal(signal.SIGTERM)
    out, log = process.communicate(timeout=scaled(30))
    assert (process.returncode, out) == (0, "stopped\n")
    assert log.count("SIGTERM") == 1


def test_a_hang_up_that_is_ignored_stays_so(start):
    """As `nohup` asks for it."""
    process = start(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=scaled(30))
    assert "SIGHUP" not in log
    assert "SIGTERM: stops" in log


def test_a_signal_for_a_forked_worker_is_not_for_the_service(start):
    """A pool ends its workers with SIGTERM. They have copies of the handlers."""
    process = start(blocks="fork")
    worker = int(process.stdout.readline())
    assert process.stdout.readline() == "ready\n"
    os.kill(worker, signal.SIGTERM)
    eventually(lambda: _state(worker) == "Z", "the worker has ended")
    process.send_signal(signal.SIGUSR1)
    assert process.stderr.readline().startswith("WARNING SIGUSR1")
    assert process.poll() is None


def test_a_worker_that_is_ended_while_it_is_forked_ends_and_the_service_does_not(start):
    """`start()` and then `terminate()`: the signal comes before the worker has run a line."""
    process = start(blocks="workers that end at once")
    process.send_signal(signal.SIGUSR1)
    assert process.stderr.readline().startswith("WARNING SIGUSR1")
    assert process.poll() is None


def test_a_forked_process_that_leaves_the_block_does_not_make_the_service_deaf(start):
    """An exception in it unwinds its copy of the stack."""
    process = start(blocks="a fork that leaves")
    process.send_signal(signal.SIGUSR1)
    assert process.stderr.readline().startswith("WARNING SIGUSR1")
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=scaled(30))[0] == "stopped\n"


def test_a_stop_does_not_wait_for_the_reader_of_the_log(start):
    """Neither the graceful one nor the end of it."""
    process = start(0.2, blocks="log")
    process.send_signal(signal.SIGTERM)
    assert process.wait(scaled(30)) == 6


def _state(pid: int) -> str:
    with Path(f"/proc/{pid}/stat").open() as file:
        return file.read().rpartition(")")[2].split()[0]
