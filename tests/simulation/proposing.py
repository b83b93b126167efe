"""The proposals of jobs in a history: a state that a process once showed, as it was or forged; named to its owner."""

from __future__ import annotations

import zlib
from functools import partial
from typing import TYPE_CHECKING, Any

from snapreplay.app import names
from snapreplay.service.ports import TopicPartition
from snapreplay.snapshots.format.records import Increment
from tests.simulation import program, told
from tests.support.proposals import propose, slice_of

if TYPE_CHECKING:
    from tests.simulation.world import World

INCREMENTS = names.increments_topic(program.APP_ID)
SNAPSHOTS = names.snapshots_topic(program.APP_ID)


def propose_somehow(world: World, how: str, seconds: float) -> bool:
    """Propose; `how`: good, twice, late (named later), stale (of an older batch), forged or ahead."""
    shown = [view for view in world.views if view.batch is not None]
    if not shown:
        return False
    view = world.rng.choice(shown) if how == "stale" else shown[-1]
    number = view.number
    log = world.broker.logs[TopicPartition(INCREMENTS, number)]
    found = [
        (at, it) for at, it in told.newest(log, Increment, log.stable) if it.batch == view.batch
    ]
    if not found:
        return False
    (at, increment), *_ = found
    snapshots = world.broker.logs[TopicPartition(SNAPSHOTS, number)]
    for _ in range(2 if how == "twice" else 1):
        snapshot_id = f"{world.rng.getrandbits(64):016x}"
        said: dict[str, Any] = {"snapshot_id": snapshot_id, "proposed_by": "compact@simulation/1"}
        if how == "ahead":
            said["batch"] = increment.batch + 5
        if how in ("forged", "ahead"):
            world.forged.add((number, snapshot_id))
        offset = propose(
            increment,
            at,
            {},
            lambda value, headers: snapshots.append(None, value, headers, 0, None),
            forge=_forged if how == "forged" else lambda _: None,
            stores=view.stored,
            **said,
        )
        later = seconds if how == "late" else 0.0
        world.loop.call_later(later, partial(_name, world, number, offset))
    return True


def _forged(parts: list[Any]) -> None:
    """An entry more than there was, with right sums."""
    key = b"\xa6forged"
    index = zlib.crc32(key) & 7
    parts.append([slice_of(index, {key: b"\xa11"})])


def _name(world: World, number: int, offset: int) -> None:
    """Name it to every process that is LIVE there; a zombie may be among them."""

    def done(state: str, snapshot_id: str | None, _: str, process: Any) -> None:
        world.network.met(f"proposal {state}")
        if world.scenario.timed:
            world.network.met(f"proposal with timers {state}")
        if state == "succeeded" and snapshot_id is not None and not process.dead:
            world.triggered.append((number, snapshot_id))

    for process in list(world.processes):
        runners = process.supervisor.runners if process.supervisor is not None else {}
        if number in runners:
            told_of = partial(done, process=process)
            process.soon(runners[number].request_adoption, offset, told_of)
