"""The effect of connections that mean harm on a running service: `benchmarks.http_attack`.

Two processes of one app share four partitions under a steady load. The first one is attacked over HTTP, in five ways:
400 connections that pipeline `GET /openapi.json` and never read, 300 half-open ones against a process that may have 150
files, 300 that send a body byte by byte, 500 that follow the events, and 1,000 that read `/metrics` again and again.
For each the table shows the rate of the outputs, the time from
record to committed output, rebalances, partitions that were taken over, and what the probes answered.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
import psutil
from confluent_kafka import Consumer, Producer

from benchmarks import harness

APP = "benchmarks/ledger_app.py"
PARTITIONS = 4
RATE = 2000
PROBE_SECONDS = 2.0
PIPELINED = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50
EVENTS = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = b"POST /trigger-snapshot HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n"
METRICS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
FILES = {"half-open": 150}
PROBES_PORT: dict[int, int] = {}
"""Of each process, by its `http.port`."""


async def _never_read(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    while True:
        writer.write(PIPELINED)
        await writer.drain()


async def _half_open(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: loc")
    await writer.drain()
    await reader.read()
    writer.close()


async def _slow_body(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(BODY)
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.5)  # slow is the point


async def _follow(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(EVENTS)
    await writer.drain()
    while await reader.read(65536):
        pass
    writer.close()


async def _read_metrics(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        writer.write(METRICS)
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
        await reader.readexactly(int(lengths[0].partition(b":")[2]))


ATTACKS: dict[str, tuple[int, Callable[[int], object]]] = {
    "none": (0, _half_open),
    "never-read": (400, _never_read),
    "half-open": (300, _half_open),
    "slow-body": (300, _slow_body),
    "streams": (500, _follow),
    "metrics": (1000, _read_metrics),
}


async def _attack(name: str, port: int) -> None:
    """Attack for ever: a connection that ended is made again."""
    count, one = ATTACKS[name]

    async def again() -> None:
        while True:
            with suppress(OSError, EOFError, asyncio.LimitOverrunError, IndexError):
                await one(port)  # type: ignore[misc]
            await asyncio.sleep(0.05)  # a client's own pause

    await asyncio.gather(*(again() for _ in range(count)))


class _Load(threading.Thread):
    """Records at a steady rate; `ts` is when each was made."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
        self.ends = threading.Event()

    def run(self) -> None:
        began, made = time.time(), 0
        while not self.ends.is_set():
            while made < (time.time() - began) * RATE:
                number = made % 1000
                value = b'{"amount": 1, "ts": %d}' % int(time.time() * 1000)
                self._producer.produce("bench-in", value, b"k%d" % number, number % PARTITIONS)
                made += 1
            self._producer.poll(0)
            self.ends.wait(0.005)
        self._producer.flush(10)


class _Outputs(threading.Thread):
    """The time at which each committed output came, and how old its record was by then."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        group = {"group.id": "attack-watch", "isolation.level": "read_committed"}
        self._consumer = Consumer({"bootstrap.servers": servers, "auto.offset.reset": "latest", **group})
        self._consumer.subscribe(["bench-out"])
        self.ends = threading.Event()
        self.ages_ms: list[float] = []

    def run(self) -> None:
        decode = msgspec.json.Decoder(dict[str, int])
        while not self.ends.is_set():
            for message in harness.arrived(self._consumer):
                made_ms = decode.decode(message.value() or b"{}")["last_ts"]
                self.ages_ms.append(time.time() * 1000 - made_ms)
        self._consumer.close()


class _Probe(threading.Thread):
    """Asks one probe twice a second, as an orchestrator would."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.ends = threading.Event()
        self.seconds: list[float] = []
        self.failed = 0

    def run(self) -> None:
        while not self.ends.is_set():
            began = time.perf_counter()
            try:
                with urllib.request.urlopen(self._url, timeout=PROBE_SECONDS) as answer:  # noqa: S310 - ours
                    answer.read()
                self.seconds.append(time.perf_counter() - began)
            except OSError:
                self.failed += 1
            self.ends.wait(0.5)

    def report(self) -> str:
        asked = len(self.seconds) + self.failed
        times = sorted(self.seconds) or [float("nan")]
        median, worst = statistics.median(times) * 1e3, times[-1] * 1e3
        return f"{self.failed}/{asked} failed, {median:.0f}/{worst:.0f} ms"


@contextmanager
def service(folder: Path, name: str, servers: str, port: int, files: int) -> Iterator[psutil.Process]:
    """Run one process of the app, which may have so many files."""
    probes = f"http.probes_port={PROBES_PORT.setdefault(port, harness.free_port())}"
    arguments = harness.service_arguments(APP, servers, port, f"instance_id={name}", probes)
    if files < 4096:
        arguments = ["-c", _LIMITED.format(files=files), *arguments]
    with harness.child(folder / f"{name}.log", *arguments) as process:
        yield process


_LIMITED = (
    "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}));"
    " os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2):
            return True
    except OSError:
        return False


def _count(folder: Path, what: str) -> int:
    return sum(log.read_text(errors="replace").count(what) for log in folder.glob("*.log"))


def _measure(servers: str, attack: str, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, ports = Path(name), (harness.free_port(), harness.free_port())
        began = time.perf_counter()
        attacked = stack.enter_context(service(folder, "attacked", servers, ports[0], FILES.get(attack, 4096)))
        harness.wait_until(lambda: "HTTP API" in (folder / "attacked.log").read_text(), "output")
        first_output = time.perf_counter() - began
        stack.enter_context(service(folder, "other", servers, ports[1], 4096))
        for port in ports:
            harness.wait_until(lambda port=port: _is_ready(port), "readiness", 0.2)  # type: ignore[misc]
        memory = _memory_mb(attacked)
        outputs = _Outputs(servers)
        load = _Load(servers)
        outputs.start()
        load.start()
        time.sleep(8)  # the load becomes steady
        asked = [(port, path) for port in (ports[0], PROBES_PORT[ports[0]]) for path in ("healthz", "readyz")]
        probes = [_Probe(f"http://127.0.0.1:{port}/{path}") for port, path in asked]
        before = [_count(folder, what) for what in _COUNTED]
        logged = (folder / "attacked.log").stat().st_size
        cpu = _cpu_seconds(attacked)
        arguments = ("-m", "benchmarks.http_attack", "--attack", attack, "--port", str(ports[0]))
        attacker = stack.enter_context(harness.child(folder / "attacker.txt", *arguments))
        outputs.ages_ms.clear()
        for probe in probes:
            probe.start()
        time.sleep(seconds)  # how long it is attacked
        ages = sorted(outputs.ages_ms)
        attacker.kill()
        rebalances, taken, tracebacks = (
            _count(folder, what) - known for what, known in zip(_COUNTED, before, strict=True)
        )
        logged = (folder / "attacked.log").stat().st_size - logged
        threads: list[_Load | _Outputs | _Probe] = [*probes, load, outputs]
        for thread in threads:
            thread.ends.set()
            thread.join()
        print(
            f"{attack:>10}: {len(ages) / seconds:6.0f} outputs/s, age {_at(ages, 0.5):5.0f} /"
            f" {_at(ages, 0.99):6.0f} ms (median, 99 %), {rebalances} rebalances, {taken} taken over,"
            f" {tracebacks} tracebacks, {logged / 1000:.0f} kB of log;"
            f" healthz {probes[0].report()}; readyz {probes[1].report()};"
            f" at the port of probes {probes[2].report()}; {probes[3].report()};"
            f" {(_cpu_seconds(attacked) - cpu) / seconds:.2f} cores,"
            f" first output {first_output:.1f} s, memory {memory} -> {_memory_mb(attacked)}",
            flush=True,
        )


_COUNTED = ("rebalance: partitions", " LIVE at batch", "Traceback")


def _at(ages: list[float], share: float) -> float:
    return ages[int(len(ages) * share)] if ages else float("nan")


def _memory_mb(process: psutil.Process) -> str:
    """Show its memory, without what it shares."""
    return f"{process.memory_full_info().uss / 1e6:.0f} MB"


def _cpu_seconds(process: psutil.Process) -> float:
    return harness.cpu_seconds(process)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--only", choices=ATTACKS)
    parser.add_argument("--attack", help=argparse.SUPPRESS)  # a child process
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attack:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft))
        asyncio.run(_attack(arguments.attack, arguments.port))
    print(harness.machine())
    with harness.local_broker() as broker:
        servers = broker.bootstrap_servers
        harness.create_topics(servers, "bench-in", "bench-out", partitions=PARTITIONS)
        harness.snapreplay("topics", "ensure", APP, "--bootstrap-servers", servers)
        harness.snapreplay("init", APP, "--bootstrap-servers", servers)
        for attack in [arguments.only] if arguments.only else ATTACKS:
            _measure(servers, attack, arguments.seconds)


if __name__ == "__main__":
    main()
