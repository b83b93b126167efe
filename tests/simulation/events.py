"""The events of the world beside the faults of single requests."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from snapreplay.service.ports import TopicPartition
from snapreplay.snapshots.format.records import Increment, Manifest
from tests.simulation import program, told
from tests.simulation.log import Log, Transaction, TxnState
from tests.simulation.network import NOWHERE
from tests.simulation.process import Process
from tests.simulation.program import INCREMENTS, SNAPSHOTS, TOPICS
from tests.simulation.replacing import AFTER, replace_input, replace_own
from tests.simulation.scenario import Event
from tests.support.proposals import propose, slice_of

if TYPE_CHECKING:
    from tests.simulation.world import World

FOREIGN = "foreign"


def happen(world: World, event: Event) -> None:
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
        case "drain":
            world.group.drain(process, seconds)
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
    await process.stop(last_snapshot=world.scenario.last_snapshot)
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
        return TopicPartition(world.rng.choice(world.inputs), number)
    return TopicPartition(TOPICS[where], number)


def _pin(world: World, where: str, seconds: float) -> bool:
    """Another transactional id leaves a transaction open: nothing behind it is visible until it ends."""
    target = _target(world, where)
    if target.topic in world.feeder.closed:
        return False
    log, transaction = world.broker.logs[target], Transaction(FOREIGN, 0, world.loop.time())
    if target.topic in program.INPUTS:
        transaction.transactional_id = "feeder"
        log.append(b"k0", b"1", (), world.feeder.now_ms, transaction)
        transaction.transactional_id = FOREIGN
    else:
        log.append(None, b"foreign", (), 0, transaction)
    commit = world.rng.random() < 0.5
    world.loop.call_later(2 * seconds, partial(_end, log, transaction, commit=commit), context=NOWHERE)
    return True


def _end(log: Log, transaction: Transaction, *, commit: bool) -> None:
    if transaction.state is TxnState.ONGOING:
        transaction.state = TxnState.COMMITTED if commit else TxnState.ABORTED
        log.mark(transaction)


def _stale(world: World, _: str, seconds: float) -> bool:
    """A broker is cut off from its peers, but not from clients: of the partitions that it led it keeps answering
    what it knew."""
    broker, number = world.broker, world.rng.randrange(world.scenario.partitions)
    inputs = world.inputs
    for topic in (INCREMENTS, SNAPSHOTS, *inputs):
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
        snapshots = world.broker.log(SNAPSHOTS, number)
        manifest = told.at(snapshots, last.pointers[-1].manifest_offset)
        if not isinstance(manifest, Manifest):
            return False
        covered = manifest.positions
    for topic, position in covered.items():
        if "/" not in topic:  # the other partitions read that log, too
            world.broker.log(topic, number).trim(position)
    return True


def last_increment(world: World, number: int) -> Increment | None:
    """Return it as committed now; None also where the genesis has no marker yet, or in a new topic."""
    log = world.broker.log(INCREMENTS, number)
    return next((each for _, each in told.newest(log, Increment, log.stable)), None)


def is_written(world: World, number: int) -> bool:
    """Say whether the own topics of today have the state: an owner that was LIVE before they were replaced may not
    have noticed yet. It may have written the snapshot into the new topic all the same, and its successor loaded it
    there."""
    last = last_increment(world, number)
    if last is None or last.topic_ids.get(INCREMENTS) != world.broker.topic_ids[INCREMENTS]:
        return False
    # The first chunks of the newest snapshot may have gone to the old T-QuanLiang.
    snapshots = world.broker.log(SNAPSHOTS, number)
    there = last.pointers and told.chunks(snapshots, last.pointers[0]) is not None
    return bool(there) or _needs_no_snapshot(world, number)


def _needs_no_snapshot(world: World, number: int) -> bool:
    """Nothing was trimmed since the genesis, so that the changes, or the input, lead to the state."""
    log = world.broker.log(INCREMENTS, number)
    inputs = () if world.scenario.changes else world.inputs
    starts = [world.broker.log(topic, number).start for topic in inputs]
    begun = any(each.begins_chain for _, each in told.newest(log, Increment, log.stable))
    return not any((log.start, *starts, begun))


def _rebalance(world: World, _: str, __: float) -> bool:
    world.group.rebalance()
    return True


def _foreign_record(world: World, _: str, __: float) -> bool:
    world.broker.logs[_target(world, "increments")].append(None, b"foreign", (), 0, None)
    return True


def _orphan(world: World, _: str, __: float) -> bool:
    """Garbage in T-QuanLiang, as a zombie may write it: records that nothing points to."""
    log = world.broker.logs[_target(world, "snapshots")]
    known = [record for record in log.records if record is not None]
    for record in known[-2:]:
        log.append(None, record.value, record.headers, 0, None)
    return True


def _replace(world: World, where: str, _: float) -> bool:
    if where == "input":
        return not world.own_replaced and replace_input(world)
    return replace_own(world, TOPICS[where])


def propose_somehow(world: World, how: str, seconds: float) -> bool:
    """Propose; `how`: good, twice, late (named later), stale (of an older batch), forged or ahead."""
    shown = [view for view in world.views if view.batch is not None]
    if not shown:
        return False
    view = world.rng.choice(shown) if how == "stale" else shown[-1]
    number = view.number
    log = world.broker.logs[TopicPartition(INCREMENTS, number)]
    found = [(at, it) for at, it in told.newest(log, Increment, log.stable) if it.batch == view.batch]
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
        world.loop.call_later(later, partial(_tell, world, number, offset))
    return True


def _forged(parts: list[Any]) -> None:
    """An entry more than there was, with right sums."""
    key = b"\xa6forged"
    index = zlib.crc32(key) & 7
    parts.append([slice_of(index, {key: b"\xa11"})])


def _tell(world: World, number: int, offset: int) -> None:
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


def _clean_input(world: World, _: str, __: float) -> bool:
    """The cleaner passes over an input whose cleanup.policy was `compact` for a while."""
    log = world.broker.logs.get(_target(world, "input"))
    if log is None:
        return False
    done = log.clean(world.rng.randint(0, log.end), world.rng.choice)
    for what in done:
        world.network.met(f"cleaner: {what}")
    return bool(done)


def _compact_table(world: World, _: str, __: float) -> bool:
    """The cleaner passes over what is processed of the table; what was compacted before that are gaps in the log."""
    number = world.rng.randrange(world.scenario.partitions)
    last, log = last_increment(world, number), world.broker.log(program.TABLE, number)
    done = log.compact(last.positions[program.TABLE], world.rng.choice) if last is not None else {}
    for what in done:
        world.network.met(f"table: {what}")
    return bool(done)


TO_TOPICS: dict[str, Callable[[World, str, float], bool]] = {
    "pin": _pin,
    "stale": _stale,
    "rebalance": _rebalance,
    "trim": _trim_input,
    "foreign": _foreign_record,
    "orphan": _orphan,
    "clean": _clean_input,
    "compact": _compact_table,
    "replace": _replace,
    "propose": propose_somehow,
    "upgrade": lambda world, how, seconds: world.decisions.upgrade(how, seconds),
    "older": lambda world, how, seconds: world.decisions.older(how, seconds),
    "inputs": lambda world, how, seconds: world.rewiring.change(how, seconds),
    "patch": lambda world, how, seconds: world.decisions.patch(how, seconds),
    "pause": lambda world, how, seconds: world.pauses.happen(how, seconds),
    "suspect": lambda world, how, seconds: world.suspicions.happen(how, seconds),
    "kill": lambda world, _, seconds: world.suspicions.two("kill", seconds),
    "freeze": lambda world, _, seconds: world.suspicions.two("freeze", seconds),
}
"""What has no process at its end; each says whether it could happen now."""
