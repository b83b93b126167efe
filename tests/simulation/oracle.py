"""The oracle of what must be true of the logs, decided from the logs alone: no line of the product's chain, planner or
recovery.

Only the decoder of the formats is shared. Trimmed records are still in the simulator's memory, so the whole history
is judged, from the genesis on.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec

from snapreplay.app import names
from snapreplay.app.names import place_of_input
from snapreplay.app.record import RawRecord
from snapreplay.service.core.partitioners import murmur_positive
from snapreplay.service.ports import TopicPartition
from snapreplay.snapshots.format.records import INPUTS_KIND, PATCHED_KIND, UPGRADED_KIND, Claim, Increment, Pointer
from snapreplay.snapshots.plan import is_decided
from snapreplay.state.digest import DEFAULT_STORE, digest_of, digest_of_stores
from tests.simulation import program, told
from tests.simulation.broker import Broker
from tests.simulation.by_time import PlainInTime
from tests.simulation.deciding import Tried
from tests.simulation.history import Batch, History, Violation, require
from tests.simulation.log import Log, Written
from tests.simulation.pausing import Pauses
from tests.simulation.program import APP_ID, INCREMENTS, RING, SNAPSHOTS, Produced
from tests.simulation.rewiring import Wish
from tests.simulation.scenario import Scenario


class Oracle:
    """Judges one partition at a time; every refusal names partition, batch and offset."""

    def __init__(
        self,
        broker: Broker,
        scenario: Scenario,
        tried: Tried,
        wishes: Mapping[str, Wish],
        pauses: Pauses,
        backlog: Mapping[TopicPartition, int],
    ) -> None:
        """Take `tried`, the corrections, and `wishes`, the changes of inputs, both by their reasons; `backlog`: where
        it ends."""
        self._broker, self._scenario, self._backlog = broker, scenario, backlog
        self._tried, self._wishes, self._pauses = tried, wishes, pauses

    def history(self, number: int) -> History:
        """Follow the chain from its genesis. Raises Violation."""
        outputs = _by_transaction(self._broker.log(program.OUTPUT, number))
        letters = _by_transaction(self._broker.log(program.LETTERS, number))
        again = self._sent_again(number)
        story = History(number, PlainInTime(**self._scenario.variant))
        for topic_id in self._broker.ids_of[INCREMENTS]:
            log, owner, claim = self._broker.by_id[topic_id][number], -1, None
            if log.has_come_back():
                story.came_back = True
                return story
            for entry, written in told.ever(log):
                if isinstance(entry, Claim):
                    owner, claim = written.record.offset, written
                    continue
                orphan = entry.topic_ids[INCREMENTS] != topic_id
                claimed = entry.owner_epoch if orphan else owner
                self._branch(story, entry, claim)
                self._pauses.follow(story, entry)
                self._follow(story, entry, written, claimed)
                self._decide(story, entry)
                require(written.transaction is not None, f"{number}: batch without a transaction")
                made_by = written.transaction and written.transaction.identity
                produced = outputs.pop(made_by, [])
                skipped = self._check_batch(story, entry, produced, written.serial, again.pop(made_by, []))
                _check_letters(story, entry, skipped, letters.pop(made_by, []))
                self._check_state(story, entry)
                if log.was_cut:
                    story.keep()
        where = f"partition {number}"
        require(not outputs, f"{where}: outputs without an increment: {list(outputs.values())}")
        require(not letters, f"{where}: dead letters without an increment")
        require(not again, f"{where}: sent to itself without an increment")
        return story

    def _sent_again(self, number: int) -> dict[Any, list[tuple[int, str, str]]]:
        """Return what a partition has sent to the internal topic: by transaction the partition, key and value."""
        found: dict[Any, list[tuple[int, str, str]]] = defaultdict(list)
        for target in range(self._scenario.partitions if self._scenario.rekeys else 0):
            for identity, records in _by_transaction(self._broker.log(program.AGAIN, target)).items():
                if identity[0] == names.transactional_id(program.APP_ID, number):
                    found[identity] += [(target, (r.key or b"").decode(), (r.value or b"").decode()) for r in records]
        return found

    def check_end(self, story: History, targets: dict[str, int]) -> None:
        """Check the end, after healing: everything is consumed, and what a restore needs is there.

        `targets`: input topic → offset after its last record.
        """
        where, last = f"partition {story.number}", story.last
        require(last is not None, f"{where}: no increment")
        if last is None:
            return
        require(last.positions.keys() == targets.keys(), f"{where}: inputs {last.positions}, not {targets}")
        for topic, target in targets.items():
            at = last.positions[topic]  # a second answer of a call may come at any time
            require(at >= target or topic == program.ANSWERS, f"{where}: {topic} consumed up to {at} of {target}")
        may_fire = self._scenario.idle_advance_ms > 0  # timers, up to the end
        left = [each for each in story.plain.calls if not (may_fire and each.startswith(f"{APP_ID}/{RING}-"))]
        require(not left, f"{where}: calls without an answer: {left}")
        starts = self._broker.log(INCREMENTS, story.number).start, self._broker.log(SNAPSHOTS, story.number).start
        for pointer in last.pointers:
            there = starts[0] <= pointer.increment_offset and starts[1] <= min(
                pointer.first_chunk_offset, pointer.manifest_offset
            )
            require(there, f"{where}: {pointer} needs what was trimmed, logs start at {starts}")
        remade = any(len(self._broker.ids_of[topic]) > 1 for topic in (INCREMENTS, SNAPSHOTS))
        is_new_chain = remade or is_decided(last)
        whole = starts[0] == 0 or is_new_chain or len(last.pointers) >= self._scenario.kept
        require(whole, f"{where}: trimmed to {starts} with {len(last.pointers)} snapshots")

    def check_inputs(self, story: History) -> None:
        """Check that what was processed is what the inputs hold: nothing was skipped, nothing was another record.

        Of a partition that says so itself this need not be true.
        """
        if story.last is None:
            return
        for topic, position in story.last.positions.items():
            log, taken = self._broker.log(*place_of_input(topic, story.number)), story.taken.get(topic, {})
            begun = min(taken, default=position)
            for offset in range(begun, position) if log.was_cut else ():
                now = log.committed_at(offset) if offset < log.end else None
                where = f"partition {story.number}: {topic} offset {offset} of {position}"
                then = taken.get(offset)
                require(now is None or now == then, f"{where} holds {now}, processed was {then}")
                same = now == then or log.is_where_it_was(offset, then)
                require(same, f"{where} was {then}, and no process says that it is lost")

    def _follow(self, story: History, increment: Increment, written: Written, owner: int) -> None:
        """The link to the batch before, and the fence."""
        offset = written.record.offset
        where = f"partition {story.number} offset {offset}: batch {increment.batch}"
        if increment.begins_chain:
            self._begin_chain(story, increment, where, owner)
        else:
            self._check_link(story, increment, where, owner)
        if increment.changes_inputs:
            self._change_inputs(story, increment, where, written.serial)
        story.topic_ids = dict(increment.topic_ids)
        story.last, story.last_offset = increment, offset

    def _branch(self, story: History, increment: Increment, claim: Written | None) -> None:
        """Increments that are lost are unknown to who finds no trace of them when it claims: their records are
        processed again. That must not be where there is a trace."""
        branch = story.branches.get(increment.batch - 1)
        if branch is None or branch.last is None or story.last is None or increment.batch > story.last.batch:
            return
        if claim is None:
            raise Violation(f"partition {story.number}: batch {increment.batch} without a claim")
        if not increment.begins_chain and branch.last_offset != increment.previous_offset:
            return
        snapshots = self._broker.log(SNAPSHOTS, story.number)
        traces = told.witnesses(snapshots, branch.last.batch, story.last.batch, claim.serial)
        traces += self._witnessed(story, branch.last.batch, claim.record.timestamp)
        where = f"partition {story.number}: batch {increment.batch} again, after {story.last.batch}"
        require(not traces, f"{where}: snapshots or offsets of {traces} show that they are lost")
        story.met["increments were lost without a trace"] += 1
        story.go_back(branch.last.batch)

    def _witnessed(self, story: History, after: int, before_ms: int) -> list[int]:
        """The batch that the owners' group told of at a time, if it is one of those that are lost."""
        history = self._broker.group_history[TopicPartition(INCREMENTS, story.number)]
        said = [each for at, each in history if at * 1000 < before_ms][-1:]
        batches = [int(msgspec.json.decode(each.metadata)["batch"]) for each in said if each is not None]
        last = story.last.batch if story.last else -1
        return [batch for batch in batches if after < batch <= last]

    def _check_link(self, story: History, increment: Increment, where: str, owner: int) -> None:
        before = story.last.batch if story.last else -1
        require(increment.batch == before + 1, f"{where} follows batch {before}")
        linked = increment.previous_offset == story.last_offset
        require(linked, f"{where} names {increment.previous_offset}, not {story.last_offset}")
        fenced = increment.owner_epoch == owner
        require(fenced, f"{where} of owner {increment.owner_epoch} after the claim at {owner}")
        if story.last is None:
            story.positions = dict(increment.genesis.start_offsets)
            story.topic_ids = dict(increment.topic_ids)
        for topic in story.positions.keys() & increment.positions.keys():
            self._check_same_input(story, topic, increment)

    def _change_inputs(self, story: History, increment: Increment, where: str, serial: int) -> None:
        """Add and retire what was asked for, or what appeared under a pattern; nothing else in a chain is decided."""
        decision = increment.decision or {}
        new, gone = (increment.positions.keys() - story.positions.keys()), story.positions.keys() - increment.positions
        said = f"{where}: {decision.get('finding')} in a chain, new {new}, retired {gone}"
        require(decision.get("finding", "").startswith(INPUTS_KIND) and bool(new or gone), said)
        wish = self._wishes.get(decision["reason"])
        appears = self._scenario.appears_at is not None
        require(bool(new) == (wish.start != "" if wish else appears), f"{said}; wanted was {wish}")
        for topic in new:
            log = self._broker.by_id[increment.topic_ids[topic]][story.number]
            at, known = increment.positions[topic], log.end if wish and wish.start == "latest" else log.start
            if wish and wish.start == "resume":
                require(at == story.retired[topic], f"{where}: {topic} continues at {at}, retired: {story.retired}")
                story.met["input taken in again behind records"] += at > log.start
            else:
                require(at <= known, f"{where}: {topic} is read from {at} on, {wish}: {known}")
            story.positions[topic] = at
            story.met[f"input added: {wish.start}" if wish else "input taken in"] += 1
        for topic in gone:
            story.retired[topic] = at = story.positions.pop(topic)
            log = self._broker.by_id[story.topic_ids[topic]][story.number]
            behind = [o for o in range(at, log.end) if log.places[o].serial < serial]
            left = [offset for offset in behind if log.visible(offset, committed_only=True)]
            leaves = wish is not None and (wish.leave_records or wish.lagged)
            require(leaves or not left, f"{where}: {topic} is retired at {at}, and has records at {left}")
            story.met["input retired, records left" if left else "input retired"] += 1

    def _begin_chain(self, story: History, increment: Increment, where: str, owner: int) -> None:
        """Begin again where the log was lost: with all that was committed before, and nothing else. An empty batch
        in doubt may have been counted; it has passed nothing but markers."""
        before = story.last.batch if story.last else -1
        batches = {before + 1, before + 2} if increment.begun_by_owner else {before + 1}
        require(increment.batch in batches, f"{where} begins again after {before}")
        require(len(increment.pointers) == 1, f"{where} begins again with {increment.pointers}")
        story.decided_batch = increment.batch
        require(increment.owner_epoch == owner, f"{where} of {increment.owner_epoch}, not {owner}")
        for topic, position in increment.positions.items():
            _, number = place_of_input(topic, story.number)
            log = self._broker.by_id[increment.topic_ids[topic]][number]
            reached = story.positions.get(topic, position)
            passed = range(reached, min(position, log.end))
            seen = [log.visible(offset, committed_only=True) for offset in passed]
            lost = position < reached or any(seen)
            require(not lost, f"{where}: {topic} {reached} to {position}: {seen}")
        story.positions = dict(increment.positions)
        if increment.batch == before + 2:
            story.states[before + 1] = story.states[before]
            story.stored[before + 1] = story.stored[before]

    def _decide(self, story: History, increment: Increment) -> None:
        """Upgrade or correct the state at exactly the batch that says so; otherwise its schema stays."""
        where, plain = f"partition {story.number} batch {increment.batch}", story.plain
        finding, schema = (increment.decision or {}).get("finding", ""), increment.origin.schema_version
        upgraded, patched = (finding.startswith(kind) for kind in (UPGRADED_KIND, PATCHED_KIND))
        if increment.batch == 0:
            plain.schema = schema
        later = schema > plain.schema
        require(later if upgraded else schema == plain.schema, f"{where}: {finding} schema {plain.schema} to {schema}")
        if upgraded or patched:
            require(increment.begins_chain, f"{where}: {finding} in a chain")
            empty = not (increment.ranges or increment.outputs or increment.fired_count)
            require(empty, f"{where}: {finding} with records, outputs or timers")
        if upgraded:
            plain.upgrade(schema)
            story.met["state upgraded"] += 1
        if patched:
            reason = (increment.decision or {}).get("reason", "")
            require(reason not in story.decided, f"{where}: {reason} is made twice")
            for line in self._tried[reason]:
                require(line.number == story.number, f"{where}: {line} of another partition")
                line.happens(plain)
            story.decided.add(reason)
            story.met["state corrected"] += 1

    def _check_same_input(self, story: History, topic: str, increment: Increment) -> None:
        """Another topic of the name is gone on with only if it holds all that was processed, where it was."""
        before, now = story.topic_ids[topic], increment.topic_ids[topic]
        if before == now:
            return
        _, number = place_of_input(topic, story.number)
        old, new = self._broker.by_id[before][number], self._broker.by_id[now][number]
        for offset in range(max(old.start, new.start), story.positions[topic]):
            same = old.visible(offset, committed_only=True) == new.visible(offset, committed_only=True)
            where = f"partition {story.number} batch {increment.batch}: {topic} offset {offset}"
            require(same, f"{where}: {now} is no copy of {before}")

    def _check_batch(
        self,
        story: History,
        increment: Increment,
        produced: list[RawRecord],
        serial: int,
        again: list[tuple[int, str, str]],
    ) -> list[tuple[str, int]]:
        """Outputs: one per applied record and timer, in order, with the right result. Returns what it skipped.
        `serial`: of the increment."""
        where = f"partition {story.number} batch {increment.batch}"
        made = [program.parse(each.value or b"") for each in produced]
        records = self._records(story, increment, made, serial)
        self._check_turn(story, increment, next((each.topic for each in increment.ranges if each.record_count), None))
        batch = Batch(story, increment, made, makes_calls=self._scenario.calls)
        for record, is_skipped in records:
            self._check_join(story, record)
            while (due := story.plain.due(record.timestamp)) is not None:
                batch.happens(due)
            batch.takes(record, is_skipped=is_skipped)
        batch.ends(idle=self._scenario.idle_advance_ms > 0)
        applied = sum(not is_skipped for _, is_skipped in records)
        require(applied == increment.record_count, f"{where}: record count")
        if self._scenario.rekeys:
            count = self._scenario.partitions
            expected = [(murmur_positive(key.encode()) % count, key, text) for key, text in batch.sent_again]
            require(sorted(again) == sorted(expected), f"{where}: sent {again} to itself, not {expected}")
        return batch.skipped

    def _check_join(self, story: History, record: RawRecord) -> None:
        """A record meets a table that has the whole backlog of before its time."""
        inputs = self._scenario.table_logs if record.topic != program.TABLE else ()
        for table in (TopicPartition(*place_of_input(name, story.number)) for name in inputs):
            log = self._broker.logs[table]
            left = range(story.table_positions[table.partition], self._backlog[table])
            there = (log.compacted.get(offset) or log.visible(offset, committed_only=True) for offset in left)
            first = next((each for each in there if each is not None), None)
            before = first is None or first.timestamp >= record.timestamp
            require(before, f"partition {story.number}: {record} comes before {table} {first}")
            story.met["joined with the backlog"] += 1

    def _records(
        self, story: History, increment: Increment, made: list[Produced], serial: int
    ) -> list[tuple[RawRecord, bool]]:
        """The input records of a batch in the order applied, and whether it skipped them."""
        where = f"partition {story.number} batch {increment.batch}"
        skip = {
            (part.topic, offset) for part in increment.skipped for offset in range(part.start_offset, part.end_offset)
        }
        told_of = {(each.topic, each.offset): each.timestamp_ms for each in made}
        found: list[tuple[RawRecord, bool]] = []
        for part in increment.ranges:
            at = story.positions[part.topic]
            require(part.start_offset == at, f"{where}: {part} does not begin at {at}")
            story.positions[part.topic] = part.end_offset
            _, number = place_of_input(part.topic, story.number)
            log = self._broker.by_id[increment.topic_ids[part.topic]][number]
            records = []
            for offset in range(part.start_offset, part.end_offset):
                place = (part.topic, offset)
                is_skipped = place in skip
                record = log.compacted.get(offset) or meant(
                    log, offset, told_of.get(place), serial, is_skipped=is_skipped
                )
                records += [record] if record is not None else []
            require(len(records) == part.record_count, f"{where}: {part} holds {len(records)}")
            for record in records:
                story.taken.setdefault(part.topic, {})[record.offset] = record
                is_skipped = (part.topic, record.offset) in skip
                found.append((record, is_skipped))
                if is_skipped:
                    bad = program.refused(program.GOOD, program.text_of(record.topic, record.value))
                    require(bad, f"{where}: a good record was skipped: {record}")
        same = increment.positions == story.positions
        require(same, f"{where}: positions {increment.positions}, ranges say {story.positions}")
        return found

    def _check_turn(self, story: History, increment: Increment, first: str | None) -> None:
        """A record whose turn has begun is the next one, unless it is lost; another one would see timers fired that are
        due only later. `first`: the input of the first record."""
        if story.begun is not None:
            topic, topic_id = story.begun
            follows, lost = (
                first or increment.begun_input,
                self._broker.log(*place_of_input(topic, story.number)).was_cut,
            )
            kept = follows == topic or increment.topic_ids.get(topic) != topic_id or lost
            where = f"partition {story.number} batch {increment.batch}"
            require(kept, f"{where}: {follows} comes before {topic}, whose turn has begun")
            story.met["turn continued in another batch"] += not increment.is_empty
        begun = increment.begun_input
        story.begun = None if begun is None else (begun, increment.topic_ids[begun])

    def _check_state(self, story: History, increment: Increment) -> None:
        where = f"partition {story.number} batch {increment.batch}"
        stored = story.plain.stored()
        story.states[increment.batch] = story.plain.entries()
        story.stored[increment.batch] = stored
        digests = {store: digest_of(inner.items()) for store, inner in stored.items()}
        digest = digest_of_stores(digests)
        require(increment.digest == digest, f"{where}: digest {increment.digest}, not {digest}")
        said = digests if digests.keys() - {DEFAULT_STORE} else {}
        found = increment.store_digests
        require(found == said, f"{where}: stores {found}, not {said}")
        for pointer in increment.pointers:
            if pointer.snapshot_id not in story.pointed:
                story.pointed.add(pointer.snapshot_id)
                self._check_snapshot(story, pointer, increment.batch if increment.begins_chain else pointer.batch)

    def _check_snapshot(self, story: History, pointer: Pointer, batch: int) -> None:
        """A pointed snapshot is complete, and holds the state after a batch: its own, or that of the decision that it
        was written for. No state of before a decision is pointed to after it."""
        where = f"partition {story.number} snapshot {pointer.snapshot_id} of batch {pointer.batch}"
        ids = self._broker.ids_of[SNAPSHOTS]
        logs = [self._broker.by_id[each][story.number] for each in reversed(ids)]
        # In whichever T-QuanLiang it was written to.
        found = next((each for log in logs if (each := told.chunks(log, pointer, lost=True)) is not None), None)
        if found is None:
            raise Violation(f"{where}: it is nowhere whole")
        entries: dict[str, dict[bytes, bytes]] = {}
        for chunk in found:
            for part in chunk.slices:
                entries.setdefault(chunk.store, {}).update(part.entries)
        require(batch >= story.decided_batch, f"{where}: of before the decision of batch {story.decided_batch}")
        expected = story.stored[batch]
        require(entries == expected, f"{where}: holds {entries}, not {expected}")


def meant(log: Log, offset: int, timestamp: int | None, serial: int, *, is_skipped: bool) -> RawRecord | None:
    """The record at an offset that a batch has processed, whose increment has this serial number. Where records were
    lost and others came, its output says which one; a skipped record has none, and is one of those that cannot be
    applied."""
    is_there = offset < log.end and (not log.was_cut or log.places[offset].serial < serial)
    there = log.visible(offset, committed_only=True) if is_there else None
    if not log.was_cut:
        return there
    if timestamp is None and not is_skipped:
        return None
    lost = (each.record for each in reversed(log.lost) if each.record.offset == offset)
    for record in (there, *lost):
        if record is None:
            continue
        bad = program.refused(program.GOOD, program.text_of(record.topic, record.value))
        if (bad and is_skipped) or record.timestamp == timestamp:
            return record
    return there


def _by_transaction(log: Log) -> dict[Any, list[RawRecord]]:
    """Return committed records of the product's own transactions."""
    found: dict[Any, list[RawRecord]] = defaultdict(list)
    for _, record, transaction in log.ever():
        if transaction is None or transaction.transactional_id.startswith(program.APP_ID):
            found[transaction and transaction.identity].append(record)
    return found


def _check_letters(
    story: History, increment: Increment, skipped: list[tuple[str, int]], letters: list[RawRecord]
) -> None:
    """One dead letter per skipped record and timer, in order."""
    found = []
    for letter in letters:
        headers = {name.rpartition(".")[2]: (value or b"").decode() for name, value in letter.headers}
        is_timer = "timer" in headers
        name, at = ("timer", "at_ms") if is_timer else ("topic", "offset")
        found.append((headers[name], int(headers[at])))
    where = f"partition {story.number} batch {increment.batch}"
    require(found == skipped, f"{where}: dead letters {found}, skipped {skipped}")
