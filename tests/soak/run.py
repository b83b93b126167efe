"""One broker, two service processes, steady load, kills; then the checker's verdict."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from snapreplay.devbroker.broker import LocalBroker
from tests.checker import app, verify
from tests.checker.load import Load
from tests.soak.report import Outcome
from tests.soak.sampling import Sampler
from tests.soak.schedule import Kill, draw
from tests.soak.service import Service
from tests.soak.trend import of_restores, over_lives, within_lives
from tests.support.stage import Stage

PARTITIONS = 4
RATE = 400
KEYS = 2000
LIVE_S = 60.0
HEAL_S = 60.0
LOOK_S = 0.05
Say = Callable[[str], None]


def run(seed: int, minutes: float, folder: Path, say: Say) -> Outcome:
    """`folder` is emptied; logs and journal of the services stay there when the outcome is not good."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    app_id = f"soak-{uuid.uuid4().hex[:8]}"
    with LocalBroker() as broker, ExitStack() as stack:
        servers = broker.bootstrap_servers
        asyncio.run(Stage(servers, app.make(app_id), PARTITIONS).prepare())
        services = [
            stack.enter_context(closing(Service(name, servers, app_id, folder)))
            for name in ("p0", "p1")
        ]
        for service in services:
            service.start()
        _until(lambda: _live(services) == PARTITIONS, LIVE_S, "all partitions LIVE")
        sampler = Sampler(services)
        outcome = Outcome(seed, minutes, sampler.seen)
        load = Load(servers, app_id, PARTITIONS, seed, rate=RATE, keys=KEYS)
        with load, sampler:
            _kill(outcome, services, minutes * 60, say)
        outcome.records = load.sent
        say("no input any more")
        _judge(outcome, servers, app_id, services, folder)
        _stop(outcome, services)
    return outcome


def _kill(outcome: Outcome, services: list[Service], seconds: float, say: Say) -> None:
    began = time.monotonic()
    for at_s, kill, begins in _actions(draw(outcome.seed, seconds)):
        _wait_until(began + at_s)
        service = services[kill.who]
        if begins:
            _check(outcome, services)
            service.kill()
            outcome.kills.append(kill)
            say(f"{at_s:6.1f} s  {service.name}.{service.incarnation} killed")
        else:
            service.start()
            say(f"{at_s:6.1f} s  {service.name}.{service.incarnation} started")
    _wait_until(began + seconds)
    _check(outcome, services)


def _actions(kills: list[Kill]) -> Iterator[tuple[float, Kill, bool]]:
    """Kills and restarts in order of time: (when, which, whether it is the kill)."""
    both = itertools.chain(
        ((kill.at_s, kill, True) for kill in kills),
        ((kill.at_s + kill.down_s, kill, False) for kill in kills),
    )
    return iter(sorted(both))


def _judge(
    outcome: Outcome, servers: str, app_id: str, services: list[Service], folder: Path
) -> None:
    outcome.verdict = verify(
        servers,
        app_id,
        outcomes=folder / "outcomes.jsonl",
        deadline_seconds=HEAL_S,
        urls=[service.url or "" for service in services],
    )
    samples, share = outcome.seen.samples, PARTITIONS // len(services)
    outcome.trends = [
        *within_lives(samples, share),
        *over_lives(samples, share),
        *of_restores(outcome.seen.restores),
    ]


def _check(outcome: Outcome, services: list[Service]) -> None:
    for service in services:
        if service.up and service.exit_code() is not None:
            outcome.problems.append(f"{service.name}.{service.incarnation} ended by itself")
            service.up = False


def _stop(outcome: Outcome, services: list[Service]) -> None:
    for service in services:
        code = service.stop()
        if code != 0:
            outcome.problems.append(f"{service.name} ended with {code} after SIGTERM, not 0")


def _live(services: list[Service]) -> int:
    return sum(each["phase"] == "live" for s in services for each in s.partitions())


def _wait_until(moment: float) -> None:
    """The soak's own clock: nothing is waited for but the time of the next kill."""
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)  # the schedule's pause between two kills


def _until(holds: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in {seconds:.0f} s: {what}")
        time.sleep(LOOK_S)  # between two looks, bounded by the deadline
