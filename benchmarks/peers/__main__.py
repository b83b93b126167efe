"""This project beside others that do the same work, in one series: `make bench-peers`, or
`python -m benchmarks.peers --only backlog restore --contestants snapreplay "Kafka Streams, memory" --runs 3`.

A running total per key, exactly once, one output per record of about 95 bytes, one partition unless said otherwise. The
contestants take turns on one broker, which shares the cores with them; each of the `--runs` series has a broker of its
own. All have a session of 6 s and otherwise their defaults. Prints each figure as it is measured and at the end a table
of least / median / most; appends the figures as JSON lines to `--results`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks import harness, latency
from benchmarks.peers.contestants import CONTESTANTS, App, Contestant
from benchmarks.takeover import feeding

SESSION_MS = 6000
RECORDS, RATE, IDLE_PARTITIONS = 1_000_000, 10_000, 200
WARM_UP_SHARE = 10
"""One part of so many of a backlog is worked off before the measurement begins."""
FOLLOWED_SECONDS = 15.0
"""For a second process to join and, where there is one, to have a warm copy."""
WATCHED_SECONDS = 75.0
"""After a kill; the longest transaction timeout of a contestant is 60 s."""
IDLE_SECONDS = 10.0

Figures = dict[str, float]


class Arena:
    """One broker, and what has been loaded into it."""

    def __init__(self, servers: str, scratch: Path, records: int) -> None:
        self.servers, self.records = servers, records
        self._scratch = scratch
        self._inputs: set[str] = set()
        self._apps = 0

    def input(self, keys: int, partitions: int = 1) -> str:
        """Return a topic with the records, loaded at its first use."""
        name = f"in-{keys}-{partitions}"
        if name not in self._inputs:
            self._inputs.add(name)
            harness.create_topics(self.servers, name, partitions=partitions)
            harness.load(self.servers, name, self.records, keys, partitions=partitions)
        return name

    def app(self, contestant: Contestant, input_topic: str = "", partitions: int = 1, standbys: int = 0) -> App:
        """Make a new app, ready to start; without `input_topic` it has an empty input of its own."""
        self._apps += 1
        name = f"app{self._apps}"
        harness.create_topics(self.servers, f"{name}-out", partitions=partitions)
        if not input_topic:
            input_topic = f"{name}-in"
            harness.create_topics(self.servers, input_topic, partitions=partitions)
        app = App(name, self.servers, input_topic, self._scratch / name, SESSION_MS, standbys)
        app.state_dir.mkdir()
        contestant.prepare(app)
        return app

    @contextmanager
    def process(self, contestant: Contestant, app: App, instance: str = "a") -> Iterator[psutil.Process]:
        """Run a process of the app for the length of the block, then kill it."""
        words, environment = contestant.command(app, instance)
        log = self._scratch / f"{app.id}-{instance}.log"
        with harness.running(log, words, environment) as process:
            yield process

    def is_left(self, app: App) -> bool:
        """Say whether the app's group has no members."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        described = admin.describe_consumer_groups([app.id])[app.id].result()
        return not described.members


class Outputs:
    """Counts the committed outputs of an app, in all partitions."""

    def __init__(self, app: App, partitions: int = 1) -> None:
        self._ends = [harness.CommittedEnd(app.servers, app.output_topic, number) for number in range(partitions)]

    def __call__(self) -> int:
        return sum(end() for end in self._ends)

    def __enter__(self) -> Outputs:
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._ends:
            end.close()


def backlog(arena: Arena, contestant: Contestant, keys: int, partitions: int = 1) -> Figures:
    """Work off a backlog, from a tenth of it to its end; and how long after its start the first output was there."""
    app = arena.app(contestant, arena.input(keys, partitions), partitions)
    with Outputs(app, partitions) as outputs:
        began = time.perf_counter()
        with arena.process(contestant, app) as process:
            return _worked_off(arena.records, outputs, process, began)


def _worked_off(records: int, outputs: Outputs, process: psutil.Process, began: float) -> Figures:
    first = harness.wait_until(lambda: outputs() > 0, "the first output")
    harness.wait_until(lambda: outputs() >= records // WARM_UP_SHARE, "a tenth of the outputs")
    count, cpu, since = outputs(), _cpu(process), time.perf_counter()
    ended = harness.wait_until(lambda: outputs() >= records, "the last output")
    million = (records - count) / 1e6
    return {
        "start to first output, s": first - began,
        "records/s": (records - count) / (ended - since),
        "CPU s per million": (_cpu(process) - cpu) / million,
        "memory, MB": _rss_mb(process),
    }


def delays(arena: Arena, contestant: Contestant) -> Figures:
    """Time from a record's sending to its committed output at a steady rate, with 100,000 keys of state."""
    keys = 100_000
    app = arena.app(contestant)
    harness.load(arena.servers, app.input_topic, keys, keys)
    load = argparse.Namespace(rate=RATE, seconds=15.0, keys=keys)
    with arena.process(contestant, app) as process, Outputs(app) as outputs:
        harness.wait_until(lambda: outputs() >= keys, "the first records", 0.1)
        run = latency.Run(arena.servers, load, app.id)
        cpu, began = _cpu(process), time.perf_counter()
        run.play()
        busy = (_cpu(process) - cpu) / (time.perf_counter() - began)
        times = run.milliseconds()
    return {"p50, ms": times["p50"], "p99, ms": times["p99"], "CPU, %": 100 * busy}


def restore(arena: Arena, contestant: Contestant) -> Figures:
    """Start after a kill with an empty disk: a million keys, the dead process already out of the group. Then kill again
    and start at once, with what is on the disk."""
    app = arena.app(contestant, arena.input(RECORDS))
    with Outputs(app) as outputs:
        with arena.process(contestant, app):
            harness.wait_until(lambda: outputs() >= arena.records, "the first life", 0.1)
        harness.wait_until(lambda: arena.is_left(app), "an empty group", 0.1)
        for each in sorted(app.state_dir.rglob("*"), reverse=True):
            each.rmdir() if each.is_dir() else each.unlink()
        seconds, memory_mb = _first_output(arena, contestant, app, outputs)
        at_once, _ = _first_output(arena, contestant, app, outputs)
    return {"empty disk, s": seconds, "at once, s": at_once, "memory, MB": memory_mb}


def _first_output(arena: Arena, contestant: Contestant, app: App, outputs: Outputs) -> tuple[float, float]:
    """Send one record, and return the seconds from a process's start to its output, and the memory then."""
    before = outputs()
    harness.load(arena.servers, app.input_topic, 1, 1)
    began = time.perf_counter()
    with arena.process(contestant, app) as process:
        seconds = harness.wait_until(lambda: outputs() > before, "an output after the kill") - began
        return seconds, _rss_mb(process)


def failover(arena: Arena, contestant: Contestant, standbys: int) -> Figures:
    """Kill the owner of the partition while another process runs: the longest time without an output."""
    app = arena.app(contestant, standbys=standbys)
    harness.load(arena.servers, app.input_topic, 100_000, 100_000)
    with ExitStack() as stack, Outputs(app) as outputs:
        processes = [stack.enter_context(arena.process(contestant, app, "a"))]
        harness.wait_until(lambda: outputs() >= 100_000, "the first records", 0.1)
        processes.append(stack.enter_context(arena.process(contestant, app, "b")))
        time.sleep(FOLLOWED_SECONDS)  # everybody has the same time
        stack.enter_context(feeding(arena.servers, app.input_topic))
        before = outputs()
        harness.wait_until(lambda: outputs() > before, "outputs of two processes", 0.1)
        loads = [(_cpu(each), each) for each in processes]
        time.sleep(5)  # whose CPU rises is the owner
        owner = max(loads, key=lambda load: _cpu(load[1]) - load[0])[1]
        owner.kill()
        return {"without an output, s": _longest_gap(outputs)}


def _longest_gap(outputs: Outputs) -> float:
    """Watch until outputs flow again, after the first long gap."""
    began = last = time.perf_counter()
    seen, longest = outputs(), 0.0
    while (now := time.perf_counter()) - began < WATCHED_SECONDS:
        if (count := outputs()) > seen:
            longest, last, seen = max(longest, now - last), now, count
            if now - began > 2 * SESSION_MS / 1000 and longest < now - began - SESSION_MS / 1000:
                break
    return max(longest, now - last)


def idle(arena: Arena, contestant: Contestant) -> Figures:
    """Own 200 partitions: the outputs of one record in each, then nothing happens."""
    app = arena.app(contestant, partitions=IDLE_PARTITIONS)
    harness.load(arena.servers, app.input_topic, IDLE_PARTITIONS, IDLE_PARTITIONS, partitions=IDLE_PARTITIONS)
    began = time.perf_counter()
    with arena.process(contestant, app) as process:
        _read_outputs(app, IDLE_PARTITIONS)
        seconds = time.perf_counter() - began
        time.sleep(5)  # what follows the start is no part of being idle
        cpu = _cpu(process)
        time.sleep(IDLE_SECONDS)  # the measurement itself
        port = int(arena.servers.rpartition(":")[2])
        connections = sum(1 for each in process.net_connections("tcp") if each.raddr and each.raddr.port == port)
        return {
            "all have an output, s": seconds,
            "idle CPU, %": 100 * (_cpu(process) - cpu) / IDLE_SECONDS,
            "connections": connections,
            "memory, MB": _rss_mb(process),
        }


def _read_outputs(app: App, count: int) -> None:
    """Read committed outputs until there are `count`. Which partitions they are in is the contestant's business."""
    options = {"bootstrap.servers": app.servers, "group.id": "bench-watch", "isolation.level": "read_committed"}
    consumer = Consumer({**options, "enable.auto.commit": False})
    consumer.assign([TopicPartition(app.output_topic, number, 0) for number in range(IDLE_PARTITIONS)])
    seen = 0

    def all_seen() -> bool:
        nonlocal seen
        seen += sum(1 for _ in harness.arrived(consumer))
        return seen >= count

    harness.wait_until(all_seen, "an output of each partition")
    consumer.close()


Scenario = Callable[[Arena, Contestant], Figures]
SCENARIOS: dict[str, tuple[Scenario, Callable[[Contestant], bool]]] = {
    "backlog": (lambda arena, each: backlog(arena, each, 100_000), lambda _: True),
    "backlog, 1,000,000 keys": (lambda arena, each: backlog(arena, each, RECORDS), lambda _: True),
    "backlog, 4 partitions": (lambda arena, each: backlog(arena, each, 100_000, 4), lambda each: each.keeps_state),
    "latency": (delays, lambda _: True),
    "restore": (restore, lambda each: each.keeps_state),
    "failover": (lambda arena, each: failover(arena, each, 0), lambda each: each.fails_over),
    "failover, 1 standby": (lambda arena, each: failover(arena, each, 1), lambda each: each.has_standbys),
    "200 idle partitions": (idle, lambda each: each.has_standbys),
}


def _cpu(process: psutil.Process) -> float:
    return harness.cpu_seconds(process, *process.children(recursive=True))


def _rss_mb(process: psutil.Process) -> float:
    return float(sum(each.memory_info().rss for each in (process, *process.children(recursive=True))) / 2**20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--records", type=int, default=RECORDS, help="records of a backlog and of a restore")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=list(SCENARIOS), metavar="SCENARIO")
    parser.add_argument("--contestants", nargs="+", choices=[each.name for each in CONTESTANTS], metavar="NAME")
    parser.add_argument("--results", type=Path, default=Path("build/peers.jsonl"))
    arguments = parser.parse_args()
    contestants = [each for each in CONTESTANTS if each.name in (arguments.contestants or [each.name])]
    print(harness.machine(), flush=True)
    arguments.results.parent.mkdir(exist_ok=True)
    measured: dict[tuple[str, str, str], list[float]] = {}
    for run in range(1, arguments.runs + 1):
        with harness.local_broker() as broker, tempfile.TemporaryDirectory() as scratch:
            arena = Arena(broker.bootstrap_servers, Path(scratch), arguments.records)
            for scenario in arguments.only:
                measure, takes_part = SCENARIOS[scenario]
                for contestant in filter(takes_part, contestants):
                    figures = measure(arena, contestant)
                    shown = ", ".join(f"{name} {value:,.2f}" for name, value in figures.items())
                    print(f"run {run}  {scenario}  {contestant.name}: {shown}", flush=True)
                    with arguments.results.open("a", encoding="utf-8") as results:
                        row = {"run": run, "scenario": scenario, "contestant": contestant.name, **figures}
                        results.write(json.dumps(row) + "\n")
                    for name, value in figures.items():
                        measured.setdefault((scenario, name, contestant.name), []).append(value)
    _show(measured, [each.name for each in contestants])


def _show(measured: dict[tuple[str, str, str], list[float]], names: list[str]) -> None:
    """Print a table in Markdown."""
    print(f"\n| | {' | '.join(names)} |\n| --- |{' --- |' * len(names)}")
    for scenario, figure in dict.fromkeys(key[:2] for key in measured):
        cells = []
        for name in names:
            values = measured.get((scenario, figure, name))
            digits = 0 if values and max(values) >= 100 else 1
            cells.append(harness.spread(values, digits) if values else "–")
        print(f"| {scenario}: {figure} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
