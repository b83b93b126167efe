"""What must be true of the logs, decided from the logs alone: no line of the product's chain, planner or recovery.

Only the decoder of the formats is shared. Trimmed records are still in the simulator's memory, so the whole history
is judged, from the genesis on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from snapreplay.app import names
from snapreplay.app.record import RawRecord
from snapreplay.service.ports import TopicPartition
from snapreplay.snapshots.format.records import Claim, Increment, Pointer
from snapreplay.state.digest import digest_of, digest_of_stores
from tests.simulation import program, told
from tests.simulation.broker import Broker
from tests.simulation.log import Log, Transaction
from tests.simulation.program import Plain, Produced
from tests.simulation.scenario import Scenario

_pack = msgspec.msgpack.encode


class Violation(AssertionError):
    """Something that must never be true was."""


@dataclass
class History:
    """One state partition as its logs tell it: the states after each batch, and which snapshots were pointed to."""

    number: int
    plain: Plain
    states: dict[int, dict[str, dict[str, str]]] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    pointed: set[str] = field(default_factory=set)
    last: Increment | None = None
    last_offset: int = -1


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
        story = History(number, Plain(self._scenario.fat, self._scenario.named))
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
        if story.last is None:
            story.positions = dict(increment.genesis.start_offsets)
            story.topic_ids = dict(increment.topic_ids)
        for topic in story.positions:
            self._check_same_input(story, topic, increment)

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
        """Outputs: one per applied record, in order, with the right result. Returns the skipped records."""
        where = f"partition {story.number} batch {increment.batch}"
        found = [program.parse(record.value or b"") for record in produced]
        applied, skipped = self._records(story, increment)
        _require(len(applied) == increment.record_count, f"{where}: record count")
        expected = []
        for record, output in zip(applied, found, strict=False):
            text, key = (record.value or b"").decode(), (record.key or b"").decode()
            _require(not program.refused(output.version, text), f"{where}: poison was applied")
            result = story.plain.apply(output.version, key, text)
            expected.append(Produced(output.version, record.topic, record.offset, result))
        same = found == expected and len(applied) == len(found)
        _require(same, f"{where}: outputs {found}, expected {expected} of {len(applied)} records")
        return skipped

    def _records(
        self, story: History, increment: Increment
    ) -> tuple[list[RawRecord], list[tuple[str, int]]]:
        """The input records of a batch in the order applied, and those it skipped."""
        where = f"partition {story.number} batch {increment.batch}"
        skip = {
            (part.topic, offset)
            for part in increment.skipped
            for offset in range(part.start_offset, part.end_offset)
        }
        applied: list[RawRecord] = []
        skipped: list[tuple[str, int]] = []
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
                if (record.topic, record.offset) in skip:
                    bad = program.refused(program.GOOD, (record.value or b"").decode())
                    _require(bad, f"{where}: a good record was skipped: {record}")
                    skipped.append((record.topic, record.offset))
                else:
                    applied.append(record)
        same = increment.positions == story.positions
        _require(same, f"{where}: positions {increment.positions}, ranges say {story.positions}")
        return applied, skipped

    def _check_state(self, story: History, increment: Increment) -> None:
        where = f"partition {story.number} batch {increment.batch}"
        entries = story.plain.entries()
        story.states[increment.batch] = entries
        digests = {store: digest_of(inner.items()) for store, inner in encoded(entries).items()}
        digest = digest_of_stores(digests)
        _require(increment.digest == digest, f"{where}: digest {increment.digest}, not {digest}")
        said = digests if self._scenario.named else {}
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
        expected = encoded(story.states[pointer.batch])
        _require(entries == expected, f"{where}: holds {entries}, not {expected}")

    def _log(self, topic: str, number: int) -> Log:
        return self._broker.logs[TopicPartition(topic, number)]


def encoded(entries: dict[str, dict[str, str]]) -> dict[str, dict[bytes, bytes]]:
    """As the state keeps them."""
    return {
        store: {_pack(key): _pack(value) for key, value in inner.items()}
        for store, inner in entries.items()
    }


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
    """One dead letter per skipped record, in order."""
    found = []
    for letter in letters:
        headers = {name.rpartition(".")[2]: value.decode() for name, value in letter.headers}
        found.append((headers["topic"], int(headers["offset"])))
    where = f"partition {story.number} batch {increment.batch}"
    _require(found == skipped, f"{where}: dead letters {found}, skipped {skipped}")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)
