"""The events of the world beside the faults of single requests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from snapreplay.app import names
from snapreplay.service.ports import TopicPartition
from snapreplay.snapshots.format.records import Increment, Manifest
from tests.simulation import program, told
from tests.simulation.log import Log, Transaction, TxnState
from tests.simulation.network import NOWHERE
from tests.simulation.process import Process
from tests.simulation.proposing import propose_somehow
from tests.simulation.replacing import AFTER, replace_input, replace_own
from tests.simulation.scenario import Event

if TYPE_CHECKING:
    from tests.simulation.world import World

FOREIGN = "foreign"
TOPICS = {
    "increments": names.increments_topic(program.APP_ID),
    "snapshots": names.snapshots_topic(program.APP_ID),
    "output": program.OUTPUT,
}


def happen(world: World, event: Event) -> None:
    """Bring it about, if it can happen now."""
    if world.healing:
        return
    world.look()
    process = world.rng.choice(world.processes) if world.processes else None
    world.network.trace("world", f"event {event.kind}")
    what, _, where = event.kind.partition(" ")
    if world.own_replaced and what not in AFTER:
        return
    if what in TO_TOPICS:
        happened = TO_TOPICS[what](world, where, event.seconds)
    else:
        happened = process is not None
        if process is not None:
            _to_process(world, what, process, event.seconds)
    if happened:
        world.network.met(event.kind)


def end_foreign(world: World) -> None:
    """Transactions that others left open are ended."""
    for log in world.broker.logs.values():
        for transaction in list(log.open_transactions):
            if transaction.transactional_id == FOREIGN:
                _end(log, transaction, commit=True)


def _to_process(world: World, what: str, process: Process, seconds: float) -> None:
    match what:
        case "crash":
            process.crash()
        case "stall":
            process.stall(seconds + 1.0)
        case "cut":
            world.group.cut(process, seconds + 1.0)
        case "twin" if not process.stalled:
            process.stall(2.0 + seconds)
            world.start(process.instance_id)
        case "trigger":
            process.soon(_trigger, world, process)
        case "start" if len(world.processes) < 3:
            # The older of two of a name is killed in the end: not while its memory may be the only copy.
            alive = [each.instance_id for each in world.processes] if world.own_replaced else []
            free = [name for name in "abc" if name not in {*world.group.members, *alive}]
            if free:
                world.start(free[0])
        case "stop" if len(world.processes) > 1 and process.supervisor is not None:
            world.processes.remove(process)
            process.spawn(_leave(world, process))


async def _leave(world: World, process: Process) -> None:
    await process.stop(final_snapshot=world.scenario.final_snapshot)
    world.group.leave(process)


def _trigger(world: World, process: Process) -> None:
    """A snapshot on demand, of everything that is LIVE there."""

    def done(number: int, state: str, snapshot_id: str | None, _: str) -> None:
        world.network.met(f"trigger {state}")
        if state == "succeeded" and snapshot_id is not None and not process.dead:
            world.triggered.append((number, snapshot_id))

    for number, runner in process.supervisor.runners.items() if process.supervisor else ():
        runner.request_snapshot("trigger", partial(done, number))


def _target(world: World, where: str) -> TopicPartition:
    number = world.rng.randrange(world.scenario.partitions)
    if where == "input":
        return TopicPartition(world.rng.choice(program.INPUTS[: world.scenario.inputs]), number)
    return TopicPartition(TOPICS[where], number)


def _log(world: World, target: TopicPartition) -> Log:
    return world.broker.logs[target]


def _pin(world: World, where: str, seconds: float) -> bool:
    """Another transactional id leaves a transaction open: nothing behind it is visible until it ends."""
    target = _target(world, where)
    if target.topic in world.feeder.closed:
        return False
    log, transaction = _log(world, target), Transaction(FOREIGN, 0, world.loop.time())
    if target.topic in program.INPUTS:
        transaction.transactional_id = "feeder"
        log.append(b"k0", b"1", (), world.feeder.now_ms, transaction)
        transaction.transactional_id = FOREIGN
    else:
        log.append(None, b"foreign", (), 0, transaction)
    commit = world.rng.random() < 0.5
    world.loop.call_later(
        2 * seconds, partial(_end, log, transaction, commit=commit), context=NOWHERE
    )
    return True


def _end(log: Log, transaction: Transaction, *, commit: bool) -> None:
    if transaction.state is TxnState.ONGOING:
        transaction.state = TxnState.COMMITTED if commit else TxnState.ABORTED
        log.mark(transaction)


def _stale(world: World, _: str, seconds: float) -> bool:
    """A broker is cut off from its peers, but not from clients: of the partitions that it led it goes on answering
    what it knew."""
    broker, number = world.broker, world.rng.randrange(world.scenario.partitions)
    inputs = program.INPUTS[: world.scenario.inputs]
    for topic in (TOPICS["increments"], TOPICS["snapshots"], *inputs):
        target = TopicPartition(topic, number)
        if world.rng.random() < 0.7 and topic not in world.feeder.closed:
            broker.cut_off(target, 2 * seconds)
    return True


def _trim_input(world: World, _: str, __: float) -> bool:
    """Retention deletes what no recovery can need: below the oldest kept snapshot, or what is processed."""
    if world.replaced:
        return False
    number = world.rng.randrange(world.scenario.partitions)
    last = last_increment(world, number)
    if last is None:
        return False
    covered = last.positions
    if world.scenario.mode == "replay":
        if len(last.pointers) < world.scenario.kept:
            return False
        snapshots = _log(world, TopicPartition(TOPICS["snapshots"], number))
        manifest = told.at(snapshots, last.pointers[-1].manifest_offset)
        if not isinstance(manifest, Manifest):
            return False
        covered = manifest.positions
    for topic, position in covered.items():
        _log(world, TopicPartition(topic, number)).trim(position)
    return True


def last_increment(world: World, number: int) -> Increment | None:
    """Return it as committed now; None also where the genesis has no marker yet, or in a new topic."""
    log = _log(world, TopicPartition(TOPICS["increments"], number))
    return next((each for _, each in told.newest(log, Increment, log.stable)), None)


def is_written(world: World, number: int) -> bool:
    """Say whether the own topics of today have the state: an owner that was LIVE before they were replaced may not
    have noticed yet. It may have written the snapshot into the new topic all the same, and its successor loaded it
    there."""
    last = last_increment(world, number)
    increments = TOPICS["increments"]
    if last is None or last.topic_ids.get(increments) != world.broker.topic_ids[increments]:
        return False
    # The first chunks of the newest snapshot may have gone to the old T-QuanLiang.
    snapshots = _log(world, TopicPartition(TOPICS["snapshots"], number))
    there = last.pointers and told.chunks(snapshots, last.pointers[0]) is not None
    return bool(there) or _needs_no_snapshot(world, number)


def _needs_no_snapshot(world: World, number: int) -> bool:
    """Nothing was trimmed since the genesis, so that the changes, or the input, lead to the state."""
    log = _log(world, TopicPartition(TOPICS["increments"], number))
    inputs = () if world.scenario.changes else program.INPUTS[: world.scenario.inputs]
    starts = [_log(world, TopicPartition(topic, number)).start for topic in inputs]
    begun = any(each.begins_anew for _, each in told.newest(log, Increment, log.stable))
    return not any((log.start, *starts, begun))


def _rebalance(world: World, _: str, __: float) -> bool:
    world.group.rebalance()
    return True


def _foreign_record(world: World, _: str, __: float) -> bool:
    _log(world, _target(world, "increments")).append(None, b"foreign", (), 0, None)
    return True


def _orphan(world: World, _: str, __: float) -> bool:
    """Garbage in T-QuanLiang, as a zombie may write it: records that nothing points to."""
    log = _log(world, _target(world, "snapshots"))
    known = [record for record in log.records if record is not None]
    for record in known[-2:]:
        log.append(None, record.value, record.headers, 0, None)
    return True


def _replace(world: World, where: str, _: float) -> bool:
    if where == "input":
        return not world.own_replaced and replace_input(world)
    return replace_own(world, TOPICS[where])


TO_TOPICS: dict[str, Callable[[World, str, float], bool]] = {
    "pin": _pin,
    "stale": _stale,
    "rebalance": _rebalance,
    "trim": _trim_input,
    "foreign": _foreign_record,
    "orphan": _orphan,
    "replace": _replace,
    "propose": propose_somehow,
}
"""What has no process at its end; each says whether it could happen now."""
