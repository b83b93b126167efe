"""The story of one partition's logs, batch by batch."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from snapreplay.app.record import RawRecord
from snapreplay.snapshots.format.records import Increment
from tests.simulation import program
from tests.simulation.by_time import Due, PlainInTime
from tests.simulation.program import Produced


class Violation(AssertionError):
    """Something that must never be true was."""


@dataclass
class History:
    """One state partition as its logs tell it: the states after each batch, and which snapshots were pointed to."""

    number: int
    plain: PlainInTime
    states: dict[int, dict[str, dict[str, str]]] = field(default_factory=dict)
    stored: dict[int, dict[str, dict[bytes, bytes]]] = field(default_factory=dict)
    met: Counter[str] = field(default_factory=Counter)
    positions: dict[str, int] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    pointed: set[str] = field(default_factory=set)
    retired: dict[str, int] = field(default_factory=dict)
    """Former input → where it was retired."""
    begun: tuple[str, str] | None = None  # input and topic id of the record whose turn has begun
    last: Increment | None = None
    last_offset: int = -1
    taken: dict[str, dict[int, RawRecord]] = field(default_factory=dict)
    """Input → offset → the record that was processed, or skipped with a dead letter."""
    table_positions: Counter[int] = field(default_factory=Counter)
    """Partition of the table → the next offset."""
    decided: set[str] = field(default_factory=set)
    """The reasons of the corrections that were made."""
    decided_batch: int = -1
    """Of the last decision: what later snapshots are of is not older."""
    came_back: bool = False
    """The brokers have lost the marker of an aborted batch, and it is in the log: what follows is not judged."""
    branches: dict[int, History] = field(default_factory=dict)
    left: list[tuple[int, dict[str, dict[str, str]], dict[str, dict[bytes, bytes]]]] = field(default_factory=list)
    """Batches that were lost with their increments and processed again: their states."""

    def keep(self) -> None:
        """Keep the state, so that an owner without what comes now can be followed, too."""
        if self.last is not None:
            self.branches[self.last.batch] = self._branch()

    def go_back(self, batch: int) -> None:
        """Go back to the state after a batch: the increments of all later ones are lost."""
        for later in [each for each in self.states if each > batch]:
            self.left.append((later, self.states.pop(later), self.stored.pop(later)))
        vars(self).update(vars(self.branches[batch]._branch()))

    def _branch(self) -> History:
        """This history up to now; what is noted by batch, all its branches have together."""
        taken = {topic: dict(records) for topic, records in self.taken.items()}
        read = Counter(self.table_positions)
        positions = dict(self.positions)
        return replace(self, plain=deepcopy(self.plain), positions=positions, taken=taken, table_positions=read)


class Batch:
    """The events in one batch, one after the other.

    Attributes:
        skipped: records by topic and offset, timers by name and time.
    """

    def __init__(
        self, story: History, increment: Increment, produced: list[Produced], *, makes_calls: bool = False
    ) -> None:
        self._story, self._plain, self._increment = story, story.plain, increment
        self._where = f"partition {story.number} batch {increment.batch}"
        self._produced, self._makes_calls = iter(produced), makes_calls
        self._timers = 0
        self.skipped: list[tuple[str, int]] = []
        self.sent_again: list[tuple[str, str]] = []
        """The key and the value of what the app is to send to itself."""

    def takes(self, record: RawRecord, *, is_skipped: bool) -> None:
        plain = self._plain
        plain.now_ms = max(plain.now_ms, record.timestamp)
        if record.topic == program.TABLE:
            self._keeps(record)
            return
        if record.topic == program.ANSWERS and not self._answers(record, is_skipped=is_skipped):
            return
        if is_skipped:
            self.skipped.append((record.topic, record.offset))
            return
        output = self._next_output(record)
        text, key = program.text_of(record.topic, record.value), (record.key or b"").decode()
        self._story.met["joined with a table"] += key in plain.facts
        require(not program.refused(output.version, text), f"{self._where}: poison was applied")
        result = plain.apply(output.version, key, text, record.timestamp)
        made = (output.version, record.topic, record.offset, result, record.timestamp)
        self._check(output, Produced(*made, schema=plain.schema))
        again = program.sent_again(record.topic, text)
        self.sent_again += [(again, text)] if again is not None else []
        self._story.met["handled what was sent again"] += record.topic == program.AGAIN
        request = program.asks(record.topic, text) if self._makes_calls else None
        if request is not None:
            plain.ask(f"{record.topic}-{record.partition}-{record.offset}", record.timestamp, key, request)

    def _keeps(self, record: RawRecord) -> None:
        """Keep a record of the table, or delete its key."""
        key = (record.key or b"").decode()
        self._story.table_positions[record.partition] = record.offset + 1
        if record.value is None:
            self._story.met["deleted from a table"] += key in self._plain.facts
            self._plain.facts.pop(key, None)
        else:
            self._plain.facts[key] = record.value.decode()

    def _answers(self, record: RawRecord, *, is_skipped: bool) -> bool:
        """Take the call that a record answers from those pending, also if it is skipped. Return whether it was one."""
        call_id, _ = program.answered(record.value or b"")
        is_pending = self._plain.calls.pop(call_id, None) is not None
        require(is_pending or not is_skipped, f"{self._where}: an answer without effect was skipped: {record}")
        said = ("answer skipped" if is_skipped else "answer handled") if is_pending else "answer dropped"
        self._story.met[said] += 1
        return is_pending

    def happens(self, due: Due) -> None:
        begins = due.kind == 2 and self._plain.next_tick_ms is None
        self._plain.passes(due)
        if due.kind == 1:
            self._story.met["entry expired"] += 1
            return
        number, self._timers = self._timers, self._timers + 1
        if begins:
            require(self._increment.begun_periods == 1, f"{self._where}: no period began")
            self._story.met["period began"] += 1
            return
        if number in self._increment.skipped_timers:
            bad = due.kind == 0 and program.trapped(program.GOOD, due.at_ms, may_fail=self._plain.may_fail)
            require(bad, f"{self._where}: a good timer was skipped: {due}")
            self.skipped.append((program.RING, due.at_ms))
            self._story.met["timer skipped"] += 1
            return
        self._story.met["timer fired" if due.kind == 0 else "period passed"] += 1
        output = self._next_output(due)
        fails = due.kind == 0 and program.trapped(output.version, due.at_ms, may_fail=self._plain.may_fail)
        require(not fails, f"{self._where}: a failing timer was applied: {due}")
        fired = self._plain.fire(output.version, due)
        self._check(output, Produced(output.version, *fired, schema=self._plain.schema))
        request = program.ring_asks(fired[2]) if self._makes_calls and due.kind == 0 else None
        if request is not None:
            self._plain.ask(f"{program.RING}-{self._story.number}", due.at_ms, due.key, request)
            self._story.met["timer has called"] += 1

    def ends(self, *, idle: bool) -> None:
        """Count what lies behind the last record, and how far stream time has come."""
        plain, increment = self._plain, self._increment
        for _ in range(increment.fired_count):
            due = plain.due(increment.stream_time_ms)
            if due is None:
                raise Violation(f"{self._where}: nothing more is due at {increment.stream_time_ms}")
            self.happens(due)
        if increment.fired_count:
            self._story.met["batch ended between two timers"] += 1
        if idle and increment.fired_count and not increment.ranges:
            later = increment.stream_time_ms - plain.now_ms
            require(later >= 0, f"{self._where}: stream time is set back by {-later} ms")
            self._story.met["time passed on quiet input"] += later > 0
            plain.now_ms = increment.stream_time_ms
        same = increment.stream_time_ms == plain.now_ms
        require(same, f"{self._where}: stream time {increment.stream_time_ms}, not {plain.now_ms}")
        unknown = [each for each in increment.skipped_timers if each >= self._timers]
        require(not unknown, f"{self._where}: skipped timers {unknown} of {self._timers}")
        more = next(self._produced, None)
        require(more is None, f"{self._where}: {more} is of nothing")

    def _next_output(self, of: object) -> Produced:
        output = next(self._produced, None)
        if output is None:
            raise Violation(f"{self._where}: no output of {of}")
        return output

    def _check(self, found: Produced, expected: Produced) -> None:
        require(found == expected, f"{self._where}: output {found}, expected {expected}")


@dataclass(frozen=True)
class View:
    """A view that a process showed as the committed state, and as of which batch; `stored`: the same with its
    timers, encoded, as a job finds it in the log."""

    name: str
    number: int
    batch: int | None
    entries: dict[str, dict[str, str]]
    stored: dict[str, dict[bytes, bytes]]

    def check(self, story: History) -> None:
        batch = -1 if self.batch is None else self.batch
        expected = story.states.get(batch), story.stored.get(batch)
        left = ((each, stored) for batch_left, each, stored in story.left if batch_left == batch)
        if (self.entries, self.stored) not in (expected, *left):
            raise Violation(
                f"{self.name} partition {self.number}: the state after batch {self.batch} is"
                f" {self.entries}, {self.stored}, not {expected}"
            )


def stored_in(store: Any) -> dict[str, dict[bytes, bytes]]:
    """Return committed entries by store; stores without entries are left out."""
    found: dict[str, dict[bytes, bytes]] = {}
    for name, each in store.maps.items():
        lookup = each.shards.committed_value
        found[name] = {key: lookup(key) or b"" for key in each.shards.committed_keys()}
    return {name: entries for name, entries in found.items() if entries}


def is_half_sealed(store: Any) -> bool:
    """Say whether a batch is being sealed now, in steps."""
    for each in store.maps.values():
        undo = each.shards._undo
        if undo is not None and undo.places is each._staged_places:
            return True
    return False


def require(holds: bool, what: str) -> None:
    """Raises Violation."""
    if not holds:
        raise Violation(what)
