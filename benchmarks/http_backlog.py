"""The rate that connections that mean harm take from a service with a backlog: `python -m benchmarks.http_backlog`.

One process owns four partitions, which are paused while their backlog is loaded. Then it works as fast as it can, in
stretches of equal length: alone, under an attack of `benchmarks.http_attack`, beside a neighbour that burns as much CPU
as the attacker and asks for nothing, and alone again. The rate is that of committed outputs, one for each record, as
the brokers tell it. What the attack takes beyond what the neighbour takes is the work of HTTP.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks import harness
from benchmarks.http_attack import APP, ATTACKS, FILES, PARTITIONS, service

KEYS = 100_000
SETTLE_SECONDS = 2.0
BURN = (
    "import time\n"
    "while True:\n"
    "    until = time.perf_counter() + {share} * 0.02\n"
    "    while time.perf_counter() < until: pass\n"
    "    time.sleep((1 - {share}) * 0.02)\n"
)


class Stretch(NamedTuple):
    """The measurement of one stretch: records a second, and the cores of the service and of what runs beside it."""

    rate: float
    service: float
    beside: float


class Backlog:
    """A service, and what it has committed."""

    def __init__(self, servers: str, process: psutil.Process, scratch: Path, seconds: float) -> None:
        self._process, self._scratch, self._seconds = process, scratch, seconds
        self._ends = [harness.CommittedEnd(servers, "bench-out", number) for number in range(PARTITIONS)]

    def committed(self) -> int:
        return sum(end() for end in self._ends)

    def stretch(self, name: str, beside: tuple[str, ...]) -> Stretch:
        """Measure with another process beside the service; none if `beside` is empty."""
        with self._beside(name, beside) as others:
            time.sleep(SETTLE_SECONDS)  # connections are made, and the rate is steady
            processes = [[self._process], others]
            cpu = [harness.cpu_seconds(*each) for each in processes]
            records, began = self.committed(), time.perf_counter()
            time.sleep(self._seconds)  # the measurement itself
            seconds = time.perf_counter() - began
            rate = (self.committed() - records) / seconds
            cores = [(harness.cpu_seconds(*each) - spent) / seconds for each, spent in zip(processes, cpu, strict=True)]
        return Stretch(rate, *cores)

    @contextmanager
    def _beside(self, name: str, arguments: tuple[str, ...]) -> Iterator[list[psutil.Process]]:
        if not arguments:
            yield []
            return
        with harness.child(self._scratch / f"{name}.txt", *arguments) as process:
            yield [process]

    def close(self) -> None:
        for end in self._ends:
            end.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=12.0, help="of each stretch; each attack has four")
    parser.add_argument("--backlog", type=int, default=8_000_000, help="records for the four stretches of an attack")
    parser.add_argument("--runs", type=int, default=1)
    attacks = [name for name in ATTACKS if name != "none"]
    parser.add_argument("--only", choices=attacks)
    arguments = parser.parse_args()
    print(f"{arguments.backlog:,} records, {KEYS:,} keys; {harness.machine()}", flush=True)
    for attack in [arguments.only] if arguments.only else attacks:
        with harness.local_broker() as broker, tempfile.TemporaryDirectory() as scratch:
            servers = broker.bootstrap_servers
            harness.create_topics(servers, "bench-in", "bench-out", partitions=PARTITIONS)
            harness.snapreplay("topics", "ensure", APP, "--bootstrap-servers", servers)
            harness.snapreplay("init", APP, "--bootstrap-servers", servers)
            _runs(servers, attack, arguments, Path(scratch))


def _runs(servers: str, attack: str, arguments: argparse.Namespace, scratch: Path) -> None:
    port = harness.free_port()
    url = f"http://127.0.0.1:{port}"
    with service(scratch, "attacked", servers, port, FILES.get(attack, 4096)) as process:
        harness.wait_until(lambda: harness.get(port, "/readyz") is not None, "readiness", 0.2)
        backlog = Backlog(servers, process, scratch, arguments.seconds)
        for number in range(1, arguments.runs + 1):
            harness.snapreplay("pause", "--wait", "--url", url, *(f"--partition={each}" for each in range(PARTITIONS)))
            harness.load(servers, "bench-in", arguments.backlog, KEYS, seed=number, partitions=PARTITIONS)
            before = backlog.committed()
            harness.snapreplay("resume", "--wait", "--url", url)
            _show(number, attack, _stretches(backlog, attack, port))
            if backlog.committed() - before >= arguments.backlog:
                raise SystemExit("the backlog was too short: take a larger --backlog")
        backlog.close()


def _stretches(backlog: Backlog, attack: str, port: int) -> dict[str, Stretch]:
    alone = backlog.stretch("alone", ())
    attacking = ("-m", "benchmarks.http_attack", "--attack", attack, "--port", str(port))
    attacked = backlog.stretch(attack, attacking)
    neighbour = backlog.stretch("neighbour", ("-c", BURN.format(share=min(attacked.beside, 1.0))))
    return {"alone": alone, attack: attacked, "neighbour": neighbour, "alone again": backlog.stretch("alone", ())}


def _show(number: int, attack: str, found: dict[str, Stretch]) -> None:
    base = (found["alone"].rate + found["alone again"].rate) / 2
    for name, each in found.items():
        print(
            f"run {number} {attack:>10} {name:>11}: {each.rate:9,.0f} records/s, {each.rate / base:4.0%} of alone;"
            f" cores: service {each.service:.2f}, beside {each.beside:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
