"""What must be true of the logs, decided from the logs alone: no line of the product's chain, planner or recovery.

Only the decoder of the formats is shared. Trimmed records are still in the simulator's memory, so the whole history
is judged, from the genesis on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from snapreplay.app import names
from snapreplay.app.record import RawRecord
from snapreplay.service.ports import TopicPartition
from snapreplay.snapshots.format.records import Claim, Increment, Pointer
from snapreplay.state.digest import DEFAULT_STORE, digest_of, digest_of_stores
from tests.simulation import program, told
from tests.simulation.broker import Broker
from tests.simulation.by_time import Due, PlainInTime
from tests.simulation.log import Log, Transaction
from tests.simulation.program import Produced
from tests.simulation.scenario import Scenario


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
    last: Increment | None = None
    last_offset: int = -1


class Batch:
    """What happens in one batch, one after the other.

    Attributes:
        skipped: records by topic and offset, timers by name and time.
    """

    def __init__(self, story: History, increment: Increment, produced: list[Produced]) -> None:
        self._story, self._plain, self._increment = story, story.plain, increment
        self._where = f"partition {story.number} batch {increment.batch}"
        self._produced = iter(produced)
        self._timers = 0
        self.skipped: list[tuple[str, int]] = []

    def takes(self, record: RawRecord, *, is_skipped: bool) -> None:
        """A record, after everything that is due before it."""
        plain = self._plain
        plain.now_ms = max(plain.now_ms, record.timestamp)
        if is_skipped:
            self.skipped.append((record.topic, record.offset))
            return
        output = self._next_output(record)
        text, key = (record.value or b"").decode(), (record.key or b"").decode()
        _require(not program.refused(output.version, text), f"{self._where}: poison was applied")
        result = plain.apply(output.version, key, text, record.timestamp)
        self._check(output, Produced(output.version, record.topic, record.offset, result))

    def happens(self, due: Due) -> None:
        """A timer fires, or an entry expires."""
        self._plain.passes(due)
        if due.kind == 1:
            self._story.met["entry expired"] += 1
            return
        number, self._timers = self._timers, self._timers + 1
        if number in self._increment.skipped_timers:
            bad = due.kind == 0 and program.trapped(
                program.GOOD, due.at_ms, may_fail=self._plain.may_fail
            )
            _require(bad, f"{self._where}: a good timer was skipped: {due}")
            self.skipped.append((program.RING, due.at_ms))
            self._story.met["timer skipped"] += 1
            return
        self._story.met["timer fired" if due.kind == 0 else "period passed"] += 1
        output = self._next_output(due)
        fails = due.kind == 0 and program.trapped(
            output.version, due.at_ms, may_fail=self._plain.may_fail
        )
        _require(not fails, f"{self._where}: a failing timer was applied: {due}")
        self._check(output, Produced(output.version, *self._plain.fire(output.version, due)))

    def ends(self, *, idle: bool) -> None:
        """What is counted behind the last record, and how far stream time has come."""
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
            _require(later >= 0, f"{self._where}: stream time is set back by {-later} ms")
            self._story.met["time passed on quiet input"] += later > 0
            plain.now_ms = increment.stream_time_ms
        same = increment.stream_time_ms == plain.now_ms
        _require(same, f"{self._where}: stream time {increment.stream_time_ms}, not {plain.now_ms}")
        unknown = [each for each in increment.skipped_timers if each >= self._timers]
        _require(not unknown, f"{self._where}: skipped timers {unknown} of {self._timers}")
        more = next(self._produced, None)
        _require(more is None, f"{self._where}: {more} is of nothing")

    def _next_output(self, of: object) -> Produced:
        output = next(self._produced, None)
        if output is None:
            raise Violation(f"{self._where}: no output of {of}")
        return output

    def _check(self, found: Produced, expected: Produced) -> None:
        _require(found == expected, f"{self._where}: output {found}, expected {expected}")


class Oracle:
    """Judges one partition at a time; every refusal names partition, batch and offset."""

    def __init__(self, broker: Broker, scenario: Scenario) -> None:
        self._broker, self._scenario = broker, scenario

    def history(self, number: int) -> History:
        """Follow the chain from its genesis.

        Raises:
            Violation.
        """
        topic = names.increments_topic(program.APP_ID)
        outputs = _by_transaction(self._log(program.OUTPUT, number))
        letters = _by_transaction(self._log(names.dead_letters_topic(program.APP_ID), number))
        story = History(number, _plain(**self._scenario.variant))
        logs = [(each, self._broker.by_id[each][number]) for each in self._broker.ids_of[topic]]
        found = [(name, its, each) for name, its in logs for each in _increments(its)]
        for topic_id, log, (increment, offset, owner) in found:
            orphan = increment.topic_ids[topic] != topic_id
            self._follow(story, increment, offset, increment.owner_epoch if orphan else owner)
            transaction = log.transactions[offset]
            _require(transaction is not None, f"{number}: batch outside of a transaction")
            skipped = self._check_batch(story, increment, outputs.pop(transaction, []))
            _check_letters(story, increment, skipped, letters.pop(transaction, []))
            self._check_state(story, increment)
        where = f"partition {number}"
        _require(not outputs, f"{where}: outputs without an increment: {list(outputs.values())}")
        _require(not letters, f"{where}: dead letters without an increment")
        return story

    def check_end(self, story: History, targets: dict[str, int]) -> None:
        """After healing: everything is consumed, and what a restore needs is there.

        `targets`: input topic → offset after its last record.
        """
        where, last = f"partition {story.number}", story.last
        _require(last is not None, f"{where}: no increment")
        if last is None:
            return
        for topic, target in targets.items():
            at = last.positions.get(topic, -1)
            _require(at >= target, f"{where}: {topic} consumed up to {at} of {target}")
        starts = (
            self._log(names.increments_topic(program.APP_ID), story.number).start,
            self._log(names.snapshots_topic(program.APP_ID), story.number).start,
        )
        for pointer in last.pointers:
            there = starts[0] <= pointer.increment_offset and starts[1] <= min(
                pointer.first_chunk_offset, pointer.manifest_offset
            )
            _require(there, f"{where}: {pointer} needs what was trimmed, logs start at {starts}")
        own = (names.increments_topic, names.snapshots_topic)
        anew = any(len(self._broker.ids_of[name(program.APP_ID)]) > 1 for name in own)
        whole = starts[0] == 0 or anew or len(last.pointers) >= self._scenario.kept
        _require(whole, f"{where}: trimmed to {starts} with {len(last.pointers)} snapshots")

    def _follow(self, story: History, increment: Increment, offset: int, owner: int) -> None:
        """The link to the batch before, and the fence."""
        where = f"partition {story.number} offset {offset}: batch {increment.batch}"
        if increment.begins_anew:
            self._begin_anew(story, increment, where, owner)
        else:
            self._check_link(story, increment, where, owner)
        story.topic_ids = dict(increment.topic_ids)
        story.last, story.last_offset = increment, offset

    def _check_link(self, story: History, increment: Increment, where: str, owner: int) -> None:
        before = story.last.batch if story.last else -1
        _require(increment.batch == before + 1, f"{where} follows batch {before}")
        linked = increment.previous_offset == story.last_offset
        _require(linked, f"{where} names {increment.previous_offset}, not {story.last_offset}")
        fenced = increment.owner_epoch == owner
        _require(fenced, f"{where} of owner {increment.owner_epoch} after the claim at {owner}")
        self._check_turn(story, increment, where)
        if story.last is None:
            story.positions = dict(increment.genesis.start_offsets)
            story.topic_ids = dict(increment.topic_ids)
        for topic in story.positions:
            self._check_same_input(story, topic, increment)

    def _check_turn(self, story: History, increment: Increment, where: str) -> None:
        """A record whose turn has begun is the next one of all, whoever applies it."""
        begun = story.last.begun_input if story.last else None
        if begun is None:
            return
        first = next((part.topic for part in increment.ranges if part.record_count), None)
        met = "a turn went on" if first is not None else "a turn went on without its record"
        story.met[met] += 1
        next_is = increment.begun_input if first is None else first
        _require(next_is == begun, f"{where}: next is {next_is}, but a turn of {begun} had begun")

    def _begin_anew(self, story: History, increment: Increment, where: str, owner: int) -> None:
        """Where the log was lost: with all that was committed before, and nothing else. An empty batch in doubt may
        have been counted; it has passed nothing but markers."""
        before = story.last.batch if story.last else -1
        _require(increment.batch in {before + 1, before + 2}, f"{where} begins anew after {before}")
        _require(increment.owner_epoch == owner, f"{where} of {increment.owner_epoch}, not {owner}")
        for topic, position in increment.positions.items():
            log = self._broker.by_id[increment.topic_ids[topic]][story.number]
            passed = range(story.positions[topic], position)
            seen = [log.visible(offset, committed_only=True) for offset in passed]
            lost = position < story.positions[topic] or any(seen)
            _require(not lost, f"{where}: {topic} {story.positions[topic]} to {position}: {seen}")
        story.positions = dict(increment.positions)
        if increment.batch == before + 2:
            story.states[before + 1] = story.states[before]
            story.stored[before + 1] = story.stored[before]

    def _check_same_input(self, story: History, topic: str, increment: Increment) -> None:
        """Another topic of the name is gone on with only if it holds all that was processed, where it was."""
        before, now = story.topic_ids[topic], increment.topic_ids[topic]
        if before == now:
            return
        old, new = self._broker.by_id[before][story.number], self._broker.by_id[now][story.number]
        for offset in range(max(old.start, new.start), story.positions[topic]):
            same = old.visible(offset, committed_only=True) == new.visible(
                offset, committed_only=True
            )
            where = f"partition {story.number} batch {increment.batch}: {topic} offset {offset}"
            _require(same, f"{where}: {now} is no copy of {before}")

    def _check_batch(
        self, story: History, increment: Increment, produced: list[RawRecord]
    ) -> list[tuple[str, int]]:
        """Outputs: one per applied record and timer, in order, with the right result. Returns what it skipped."""
        where = f"partition {story.number} batch {increment.batch}"
        records = self._records(story, increment)
        batch = Batch(story, increment, [program.parse(each.value or b"") for each in produced])
        for record, is_skipped in records:
            while (due := story.plain.due(record.timestamp)) is not None:
                batch.happens(due)
            batch.takes(record, is_skipped=is_skipped)
        batch.ends(idle=self._scenario.idle_advance_ms > 0)
        applied = sum(not is_skipped for _, is_skipped in records)
        _require(applied == increment.record_count, f"{where}: record count")
        return batch.skipped

    def _records(self, story: History, increment: Increment) -> list[tuple[RawRecord, bool]]:
        """The input records of a batch in the order applied, and whether it skipped them."""
        where = f"partition {story.number} batch {increment.batch}"
        skip = {
            (part.topic, offset)
            for part in increment.skipped
            for offset in range(part.start_offset, part.end_offset)
        }
        found: list[tuple[RawRecord, bool]] = []
        for part in increment.ranges:
            at = story.positions[part.topic]
            _require(part.start_offset == at, f"{where}: {part} does not begin at {at}")
            story.positions[part.topic] = part.end_offset
            log = self._broker.by_id[increment.topic_ids[part.topic]][story.number]
            inside = range(part.start_offset, part.end_offset)
            seen = [log.visible(offset, committed_only=True) for offset in inside]
            records = [record for record in seen if record is not None]
            _require(len(records) == part.record_count, f"{where}: {part} holds {len(records)}")
            for record in records:
                is_skipped = (record.topic, record.offset) in skip
                found.append((record, is_skipped))
                if is_skipped:
                    bad = program.refused(program.GOOD, (record.value or b"").decode())
                    _require(bad, f"{where}: a good record was skipped: {record}")
        same = increment.positions == story.positions
        _require(same, f"{where}: positions {increment.positions}, ranges say {story.positions}")
        return found

    def _check_state(self, story: History, increment: Increment) -> None:
        where = f"partition {story.number} batch {increment.batch}"
        stored = story.plain.stored()
        story.states[increment.batch] = story.plain.entries()
        story.stored[increment.batch] = stored
        digests = {store: digest_of(inner.items()) for store, inner in stored.items()}
        digest = digest_of_stores(digests)
        _require(increment.digest == digest, f"{where}: digest {increment.digest}, not {digest}")
        said = digests if digests.keys() - {DEFAULT_STORE} else {}
        found = increment.store_digests
        _require(found == said, f"{where}: stores {found}, not {said}")
        for pointer in increment.pointers:
            if pointer.snapshot_id not in story.pointed:
                story.pointed.add(pointer.snapshot_id)
                self._check_snapshot(story, pointer)

    def _check_snapshot(self, story: History, pointer: Pointer) -> None:
        """A pointed snapshot is complete, and holds the state after its batch."""
        where = f"partition {story.number} snapshot {pointer.snapshot_id} of batch {pointer.batch}"
        ids = self._broker.ids_of[names.snapshots_topic(program.APP_ID)]
        logs = [self._broker.by_id[each][story.number] for each in reversed(ids)]
        # In whichever T-QuanLiang it was written to.
        found = next(
            (each for log in logs if (each := told.chunks(log, pointer)) is not None), None
        )
        if found is None:
            raise Violation(f"{where}: it is nowhere whole")
        entries: dict[str, dict[bytes, bytes]] = {}
        for chunk in found:
            for part in chunk.slices:
                entries.setdefault(chunk.store, {}).update(part.entries)
        expected = story.stored[pointer.batch]
        _require(entries == expected, f"{where}: holds {entries}, not {expected}")

    def _log(self, topic: str, number: int) -> Log:
        return self._broker.logs[TopicPartition(topic, number)]


def _plain(*, fat: bool, named: bool, timed: bool, may_fail: bool) -> PlainInTime:
    return PlainInTime(fat, named, timed=timed, may_fail=may_fail)


def _increments(log: Log) -> Iterator[tuple[Increment, int, int]]:
    """Every committed increment with its offset and that of the newest claim before it."""
    claims = [offset for offset, _ in told.newest(log, Claim)]
    for offset, increment in reversed(list(told.newest(log, Increment))):
        yield increment, offset, next((claim for claim in claims if claim < offset), -1)


def _by_transaction(log: Log) -> dict[Transaction | None, list[RawRecord]]:
    """Committed records of the product's own transactions."""
    found: dict[Transaction | None, list[RawRecord]] = defaultdict(list)
    for record in log.committed():
        transaction = log.transactions[record.offset]
        if transaction is None or transaction.transactional_id.startswith(program.APP_ID):
            found[transaction].append(record)
    return found


def _check_letters(
    story: History,
    increment: Increment,
    skipped: list[tuple[str, int]],
    letters: list[RawRecord],
) -> None:
    """One dead letter per skipped record and timer, in order."""
    found = []
    for letter in letters:
        headers = {name.rpartition(".")[2]: value.decode() for name, value in letter.headers}
        is_timer = "timer" in headers
        name, at = ("timer", "at_ms") if is_timer else ("topic", "offset")
        found.append((headers[name], int(headers[at])))
    where = f"partition {story.number} batch {increment.batch}"
    _require(found == skipped, f"{where}: dead letters {found}, skipped {skipped}")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)
