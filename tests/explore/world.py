"""Two owners of one partition over one log: what there is, and what must always be true of it; and an owner's turn,
with what follows when its ownership has ended, as the machine of ownership says.

A table's topic, an internal topic and the answers of calls are inputs, and a table's entries and pending calls are
entries of the state. A walk with them would have the same steps: a batch counts in `in`, and there is one digest. What
their records do to the state is for the simulator (`tests.simulation --tables --rekeys --calls`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from snapreplay.errors import SnapreplayError
from snapreplay.service.core import effects
from snapreplay.service.core import ownership as machine
from snapreplay.service.core.batch_failures import BatchFailures
from snapreplay.service.core.chain import Chain, genesis_increment
from snapreplay.service.core.kafka_errors import CommitInDoubt, Fenced
from snapreplay.service.core.ownership import Ownership
from snapreplay.service.core.recovery import Recovery
from snapreplay.service.core.refusals import Expected
from snapreplay.service.core.retained import RetainedState, WarmCopy
from snapreplay.service.core.search import FoundIncrement
from snapreplay.snapshots.format.records import PATCHED_KIND, UPGRADED_KIND, Claim, Genesis, Increment, Origin
from snapreplay.snapshots.plan import LogStarts, NoUsableSnapshot, plan_start
from snapreplay.state.digest import DEFAULT_STORE, Digest
from snapreplay.state.fields import StoreFields
from tests.explore.replacing import replace

STORES: Mapping[tuple[int, str], StoreFields] = {(1, DEFAULT_STORE): StoreFields(frozenset())}
GENESIS = Genesis("cluster", 1, {"in": 0})
MORE = "more"
"""The input that a command adds, or an owner whose code declares it as an internal topic."""
IDS = {"in": "a", "increments": "b", "snapshots": "c", MORE: "d"}
NAMES = ("A", "B")
KEPT = 1  # snapshots


def origin_of(schema: int) -> Origin:
    return Origin("ledger", str(schema), schema, "")


class State(NamedTuple):
    """A state: what was decided about its entries, and how many times. What else is in it is in no digest."""

    upgrades: int = 0
    patches: int = 0

    @classmethod
    def of(cls, increment: Increment) -> State:
        """Return the state after a batch, as it says."""
        return cls(increment.digest.a, increment.digest.b)

    @property
    def digest(self) -> Digest:
        return Digest(0, *self)


UNTOUCHED = State()


class Snapshot(NamedTuple):
    """One full snapshot."""

    batch: int
    state: State


class Entry(NamedTuple):
    """One offset of the increments topic: a claim, an increment, or a transaction's marker."""

    claim: Claim | None = None
    increment: Increment | None = None


MARKER = Entry()


@dataclass(frozen=True)
class Owner:
    """One process. `doing` is what it performs next; None: it processes, with `chain`.

    Attributes:
        producer_epoch: that its fence gave it.
        claims: how many it has written.
        view: how much of the log its reader sees, while a broker that lags behind answers; None: all.
        kept: the state in its memory, for the next recovery.
        remembers: the batch that this was the state of, when its ownership ended.
        has_stopped: it says what was lost, or that it is older code, and a person must act.
        waits: it has stopped because the log has other inputs, and is retried when that has changed.
        state: in its memory.
        copy: a standby's, which its next recovery begins with.
    """

    ownership: Ownership
    doing: effects.Action | None
    recovery: Recovery | None = None
    producer_epoch: int = -1
    claims: int = 0
    view: int | None = None
    chain: Chain | None = None
    kept: RetainedState | None = None
    stands_back: bool = False
    asks: bool = False
    remembers: int = -1
    has_stopped: bool = False
    waits: bool = False
    state: State = UNTOUCHED
    copy: WarmCopy | None = None

    @property
    def origin(self) -> Origin:
        return origin_of(self.ownership.expected.schema_version)


@dataclass(frozen=True)
class Rules:
    """The rules of the protocol; each can be broken, to see whether it is found."""

    fences: bool = True
    claims: bool = True
    waits_for_claim: bool = True
    waits_for_pointer: bool = True
    trims_too_far: bool = False
    compares_offsets: bool = True
    begins_chain: bool = True
    upgrades_once: bool = True
    waits_for_decision: bool = True
    command_fences: bool = True
    looks_again: bool = True
    compares_copies: bool = True


@dataclass(frozen=True)
class Command:
    """A command that corrects an entry, or adds an input.

    Attributes:
        looked: the last increment that it has seen before it fenced, if it decides with that.
        epoch: that its fence gave it.
        claims: how many it has written.
    """

    corrects: bool
    looked: FoundIncrement | None = None
    epoch: int = -1
    claims: int = 0
    claim_offset: int = -1


@dataclass(frozen=True)
class World:
    """`faults`, `crashes`, `fences` and `losses` are how many may still happen; `snapshots` is what each manifest
    leads to. `was_cut`: the brokers have lost the end of the log."""

    log: tuple[Entry, ...]
    owners: tuple[Owner, Owner]
    epoch: int = 0
    log_start: int = 0
    snapshots: tuple[Snapshot | None, ...] = ()
    snapshots_start: int = 0
    batches: int = 3
    snapshots_left: int = 1
    faults: int = 1
    crashes: int = 1
    fences: int = 4
    losses: int = 0
    was_cut: bool = False
    copies: bool = False
    """Whether who is no owner follows the log."""
    command: Command | None = None
    rules: Rules = Rules()
    broken: str = field(default="", compare=False)

    @property
    def starts(self) -> LogStarts:
        return LogStarts(self.log_start, self.snapshots_start, {"in": 0, MORE: 0})

    def found(self, start: int, end: int) -> FoundIncrement | None:
        """The last increment with start <= offset < end."""
        for offset in range(min(end, len(self.log)) - 1, max(start, self.log_start) - 1, -1):
            increment = self.log[offset].increment
            if increment is not None:
                return FoundIncrement(increment, offset)
        return None

    def has_lost(self, last: FoundIncrement) -> bool:
        """Say whether the log held this increment at its offset, and does not any more."""
        there = self.log[last.offset].increment if last.offset < len(self.log) else None
        return self.was_cut and there != last.increment

    def is_unlinked(self, last: FoundIncrement) -> bool:
        """Say whether the chain to this increment is broken, as only a log that was cut has it."""
        at, offset = last.increment, last.offset
        if not self.was_cut or offset >= len(self.log):
            return False
        while at.batch and not at.begins_chain:
            before = self.log[at.previous_offset].increment if at.previous_offset < offset else None
            if before is None or before.batch != at.batch - 1:
                return True
            at, offset = before, at.previous_offset
        return False

    def newer_claim(self, after: int | None) -> Claim | None:
        """The newest one behind it."""
        behind = self.log[after + 1 :] if after is not None else ()
        claims = [entry.claim for entry in behind if entry.claim is not None]
        return claims[-1] if claims else None


def expected(name: str, schema: int, inputs: frozenset[str], internal: frozenset[str]) -> Expected:
    upgrades = STORES if schema > 1 else {}
    known = "ledger", schema, "cluster", 0, 1, inputs, "increments", name, f"p{name}", 0
    return Expected(*known, upgrades=upgrades, internal=internal)


def claim_of(name: str, number: int) -> Claim:
    return Claim(f"{name}{number}", "ledger", "cluster", f"p{name}", name, name, 0, 0)


def beginning(
    schemas: tuple[int, int] = (1, 1), inputs: tuple[int, int] = (1, 1), rekeys: bool = False, /, **bounds: Any
) -> World:
    """Two owners, whose code has these schema versions and as many inputs, of a partition that version 1 has begun.
    `rekeys`: their code declares an internal topic, which that version did not have."""
    ids = {name: each for name, each in IDS.items() if name != MORE}
    genesis = genesis_increment(origin_of(1), 0, GENESIS, UNTOUCHED.digest, 0, ids)
    log = (Entry(claim=claim_of("init", 0)), MARKER, Entry(increment=genesis), MARKER)
    internal = frozenset((MORE,) if rekeys else ())
    known = map(expected, NAMES, schemas, (frozenset(("in", MORE)[:count]) for count in inputs), (internal, internal))
    one, two = (Owner(Ownership(each, 1, 1, BatchFailures(0)), None) for each in known)
    return replace(World(log, (one, two)), **bounds)


def problems(world: World) -> Iterator[str]:
    if world.was_cut:
        yield from _unlinked(world)
        return
    before: tuple[Increment, int] | None = None
    for offset, entry in enumerate(world.log):
        increment = entry.increment
        if increment is None:
            continue
        if before is not None:
            last, last_offset = before
            yield from _decided(last, increment, offset)
            follows = increment.owner_epoch if increment.begins_chain else last_offset
            if (increment.batch, increment.previous_offset) != (last.batch + 1, follows):
                yield f"two chains: batch {increment.batch} at {offset} follows {last.batch} at {last_offset}"
            step = increment.positions["in"] - last.positions["in"]
            if step != increment.record_count:
                yield f"batch {increment.batch} at {offset}: {step} records, says {increment.record_count}"
            if increment.positions.keys() != last.positions.keys() and not increment.changes_inputs:
                yield f"batch {increment.batch} at {offset} has other inputs than batch {last.batch}"
        before = increment, offset
    if before is not None:
        yield from _lost(world, *before)


def _decided(last: Increment, increment: Increment, offset: int) -> Iterator[str]:
    """Say what is wrong with the version and the state of an increment: only an upgrade has another version, and
    upgrades once; only a correction corrects, and only what it was meant for."""
    before, now = last.origin.schema_version, increment.origin.schema_version
    finding, corrects = (increment.decision or {}).get("finding", ""), State.of(last).patches == 0
    if now != before and not (finding.startswith(UPGRADED_KIND) and now > before):
        yield f"batch {increment.batch} at {offset} of schema {now} follows one of schema {before}"
    patches = State.of(last).patches + finding.startswith(PATCHED_KIND)
    if State.of(increment) != (now - 1, patches) or (finding.startswith(PATCHED_KIND) and not corrects):
        yield f"batch {increment.batch} at {offset} of schema {now} is of a state {State.of(increment)}"


def _unlinked(world: World) -> Iterator[str]:
    """An owner that is LIVE with the last increment, to which no chain leads: a restore would end there."""
    for name, owner in zip(NAMES, world.owners, strict=True):
        last = world.found(0, len(world.log))
        if owner.chain is None or owner.producer_epoch != world.epoch or last is None:
            continue
        if last.offset != owner.chain.last_offset or last.increment != owner.chain.last:
            continue
        if world.is_unlinked(last):
            yield f"{name} is LIVE with batch {last.increment.batch}, which follows nothing"


def _lost(world: World, last: Increment, last_offset: int) -> Iterator[str]:
    try:
        plan_start(last, last_offset, world.starts, {})
    except NoUsableSnapshot:
        yield "nothing to restore from: what is needed was trimmed"
    for pointer in last.pointers:
        offset = pointer.manifest_offset
        there = world.snapshots[offset] if offset < len(world.snapshots) else None
        if there is None or (there.batch, there.state.digest) != (pointer.batch, pointer.digest):
            yield f"a pointer to a snapshot of batch {pointer.batch} that does not exist"


FENCED = Fenced("refused")
IN_DOUBT = CommitInDoubt("no answer")

Move = tuple[str, World]


class Turn(NamedTuple):
    """`owner` is this one after the steps that it has done so far."""

    world: World
    number: int
    owner: Owner

    @property
    def is_fenced(self) -> bool:
        return self.owner.producer_epoch != self.world.epoch

    def now(self, **changes: Any) -> Turn:
        return self._replace(owner=replace(self.owner, **changes))

    def on(self, **changes: Any) -> Turn:
        return self._replace(world=replace(self.world, **changes))

    def writes(self, *entries: Entry) -> Turn:
        return self.on(log=(*self.world.log, *entries))

    def faulty(self) -> Turn:
        return self.on(faults=self.world.faults - 1)

    def done(self, broken: str = "") -> World:
        owners = list(self.world.owners)
        owners[self.number] = self.owner
        broken = broken or self.world.broken
        return replace(self.world, owners=(owners[0], owners[1]), broken=broken)


def ended(turn: Turn, error: SnapreplayError, failed: Increment | None = None, owner_epoch: int | None = None) -> World:
    epoch = owner_epoch if owner_epoch is not None else turn.owner.ownership.owner_epoch
    outcome = machine.Ended(error, 0.0, epoch, 0, failed)
    return follow(turn.now(recovery=None, doing=None, view=None), outcome)


def follow(turn: Turn, outcome: machine.Outcome) -> World:
    ownership, following = machine.step(turn.owner.ownership, outcome)
    ownership = replace(
        ownership,
        back_off=type(ownership.back_off)(),
        takeovers=type(ownership.takeovers)(),
        failures=type(ownership.failures)(0),
    )
    turn = turn.now(ownership=ownership)
    match following:
        case machine.Own():
            return turn.done()
        case machine.AskForLoss():
            return follow(turn, machine.LossAnswered(None))
        case machine.Lose():
            return follow(turn, machine.Done())
        case machine.AskForOwner():
            return turn.now(asks=True).done()
        case machine.BackOff():
            return follow(turn, machine.Done())
        case machine.StandBack():
            back = replace(ownership, stage=machine.Stage.OWNING)
            return turn.now(kept=None, remembers=-1, stands_back=True, ownership=back).done()
        case _ if turn.world.was_cut:
            return turn.now(has_stopped=True).done()
        case _:
            return turn.done(broken=f"it stops: {following}")
