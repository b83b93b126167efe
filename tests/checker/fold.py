"""Input records in the order the increments say, through the app by hand, against the outputs and the digests."""

from collections.abc import Mapping

import msgpack
import xxhash

from tests.checker import wire
from tests.checker.ledger import Ledger
from tests.checker.outputs import Outputs
from tests.checker.reading import Bounds, Cursor, Logs, Names, Record
from tests.checker.state import DigestCheck, Image
from tests.checker.verdict import Check, Verdict


class Fold:
    """One partition's input, outputs and state, as far as the increments have covered it.

    Where T-ZengLiang was trimmed, the order of several inputs before its first increment is not written down any more:
    there the outputs say it. Where an input was trimmed, the fold begins with the state of a snapshot.
    """

    def __init__(
        self, logs: Logs, partition: int, inputs: Mapping[str, Bounds], outputs: Outputs, names: Names, verdict: Verdict
    ) -> None:
        self._logs = logs
        self._partition = partition
        self._inputs = inputs
        self._outputs = outputs
        self._names = names
        self._output_topic, self._releases = names.output, names.releases
        self.sent: wire.Sums | None = wire.Sums()
        """What was sent to the internal topic; None: what was processed before the fold began is not known."""
        self._verdict = verdict
        self._cursors: dict[str, Cursor] = {}
        self._ledger: Ledger | None = None
        self._check = DigestCheck("fold of the input", verdict)

    def begin(self, first: wire.Increment, image: Image | None, where: str) -> None:
        """Begin with the first increment that is there. Everything before the end of its batch is folded now."""
        trimmed = [t for t, start in first.genesis.start_offsets.items() if self._inputs[t].start > start]
        if trimmed:
            self._begin_later(first, image, f"{where}: inputs {', '.join(trimmed)} were trimmed")
            return
        self._ledger = Ledger(self._names, self._partition)
        self._seek(first.genesis.start_offsets, 0)
        self._in_order_of_outputs(first.positions)
        # How much happened in batches without records before it is not written down any more.
        while self._ledger.image.digest != first.digest and self._pass(first.stream_time_ms, 1)[0]:
            pass
        self._take_sent()
        self._check.compare(first, self._ledger.image, where)

    def begin_chain(self, first: wire.Increment, image: Image | None, where: str) -> None:
        """Begin again: what was is not judged by what comes."""
        who = "its owner" if first.begun_by_owner or first.upgrades else "an operator's decision"
        self._begin_later(first, image, f"{where}: {who} begins a new chain")

    def batch(self, found: wire.Increment, image: Image | None, where: str) -> None:
        """The ranges of an increment that follows the one before. `image`: the state after it."""
        if self._ledger is None:
            self._verdict.counts["batches without fold"] += 1
            self._try_to_begin(found, image)
            return
        visible, trimmed = 0, self._outputs.trimmed
        self._outputs.begin_batch()
        for each in found.ranges:
            visible += self._range(each, found.skipped, where)
        happened, of_timers = self._pass(found.stream_time_ms, found.fired_count)
        visible += of_timers
        self._judge_time(found, happened, where)
        promised = found.outputs.get(self._output_topic, 0)
        if visible != promised and not trimmed:
            what = f"batch {found.batch} is committed with {promised} outputs, {visible} of them are visible"
            self._verdict.add(Check.ATOMICITY, where, what)
        if visible == promised:
            self._compare_sent(found, visible, where)
        self._compare_hops(found, where)
        self._check.compare(found, self._ledger.image, where)

    def _judge_time(self, found: wire.Increment, happened: int, where: str) -> None:
        assert self._ledger is not None
        said, seen = (found.fired_count, found.stream_time_ms), (happened, self._ledger.now_ms)
        if said != seen:
            what = f"batch {found.batch} says {said} of what happened behind its records and of stream time, not {seen}"
            self._verdict.add(Check.STATE, where, what)

    def _pass(self, up_to_ms: int, most: int | None = None) -> tuple[int, int]:
        """Let time pass: how much happened, and how many outputs of it are visible."""
        assert self._ledger is not None
        happened = visible = 0
        for expected in self._ledger.passes(up_to_ms, most):
            happened += 1
            if expected is None:
                self._verdict.counts["entries expired"] += 1
                continue
            self._verdict.counts["timers fired"] += 1
            visible += self._outputs.expect(expected)
        return happened, visible

    def _compare_sent(self, found: wire.Increment, visible: int, where: str) -> None:
        self._verdict.counts["batches whose outputs were hashed"] += 1
        recorded = found.outputs_xxh64.get(self._output_topic)
        sent = self._outputs.sent_xxh64 if visible else None
        if recorded != sent:
            what = f"batch {found.batch} is committed with outputs of hash {recorded}, those visible have {sent}"
            self._verdict.add(Check.ATOMICITY, where, what)

    def _compare_hops(self, found: wire.Increment, where: str) -> None:
        """What the increment says of the internal topic. What is in it is compared when all partitions are read."""
        topic, sent = self._names.hops, self._take_sent()
        packed = b"".join(msgpack.packb([topic, *each, None, False, None, []]) for each in sent)
        expected = (len(sent), xxhash.xxh64_intdigest(packed)) if sent else (0, None)
        said = found.outputs.get(topic, 0), found.outputs_xxh64.get(topic)
        if said != expected:
            what = f"batch {found.batch} is committed with {said} to {topic}, the fold of the input says {expected}"
            self._verdict.add(Check.ATOMICITY, where, what)

    def _take_sent(self) -> list[tuple[bytes, bytes]]:
        assert self._ledger is not None
        taken, self._ledger.sent = self._ledger.sent, []
        for each in taken:
            if self.sent is not None:
                self.sent.put(*each)
        return taken

    def end(self, positions: Mapping[str, int]) -> None:
        """`positions` of the last increment."""
        for topic, position in positions.items():
            bounds = self._inputs[topic]
            if position > bounds.stable:
                what = f"position {position} lies behind the end of the input, {bounds.stable}"
                self._verdict.add(Check.EXACTLY_ONCE, f"{topic}-{self._partition}", what)
        if self._ledger is not None:
            self._outputs.finish()
            if self._ledger.unanswered:
                what = f"{self._names.increments}-{self._partition}: {self._ledger.unanswered} calls have no answer yet"
                self._verdict.unchecked.append(what)
        else:
            what = f"{self._output_topic}-{self._partition}: the outputs after that, either"
            self._verdict.unchecked.append(what)

    def _begin_later(self, first: wire.Increment, image: Image | None, why: str) -> None:
        self._ledger = self.sent = None
        self._verdict.unchecked.append(f"{why}: outputs of what was processed before")
        self._try_to_begin(first, image)

    def _try_to_begin(self, found: wire.Increment, image: Image | None) -> None:
        """Begin behind this batch, if its state is known and the inputs reach back to it."""
        ahead = all(self._inputs[t].start <= position for t, position in found.positions.items())
        if image is None or not ahead:
            return
        self._ledger = Ledger(self._names, self._partition, image.stored, found.stream_time_ms)
        self._seek(found.positions, self._ledger.released)
        self._verdict.counts["outputs not checked"] += self._outputs.pass_over()

    def _seek(self, offsets: Mapping[str, int], released: int) -> None:
        self._outputs.begin({**offsets, self._releases: released})
        self._cursors = {
            topic: Cursor(self._logs.read(topic, self._partition, offset, self._inputs[topic].stable))
            for topic, offset in offsets.items()
        }

    def _in_order_of_outputs(self, ends: Mapping[str, int]) -> None:
        while (head := self._outputs.head_of_input(self._releases)) is not None:
            end = ends.get(head.topic, 0)
            record = self._cursors[head.topic].below(end) if head.input_offset < end else None
            if record is None:
                break
            self._expect(head.topic, record)
        for topic, end in ends.items():
            while (record := self._cursors[topic].below(end)) is not None:
                self._expect(topic, record)

    def _range(self, found: wire.Range, skipped: list[wire.Skipped], where: str) -> int:
        """Return how many outputs of its records are visible."""
        assert self._ledger is not None
        visible = records = 0
        cursor = self._cursors[found.topic]
        while (record := cursor.below(found.end)) is not None:
            if record.offset < found.start:
                at = f"{found.topic}-{self._partition}-{record.offset}"
                what = "this input record lies below the covered position, and in no range"
                self._verdict.add(Check.EXACTLY_ONCE, at, what)
                continue
            records += 1
            visible += self._pass(record.timestamp_ms)[1]
            if any(each.topic == found.topic and each.start <= record.offset < each.end for each in skipped):
                self._ledger.now_ms = max(self._ledger.now_ms, record.timestamp_ms)
                self._outputs.skip(found.topic, record.offset)
                self._verdict.counts["skipped input records"] += 1
                continue
            visible += self._book(found.topic, record)
        if records != found.records:
            what = f"{found} has {records} input records"
            self._verdict.add(Check.EXACTLY_ONCE, where, what)
        return visible

    def _expect(self, topic: str, record: Record) -> int:
        """Expect a record with everything that is due before it; return how many outputs are visible."""
        _, visible = self._pass(record.timestamp_ms)
        return visible + self._book(topic, record)

    def _book(self, topic: str, record: Record) -> bool:
        assert self._ledger is not None
        self._verdict.counts["input records"] += 1
        expected = self._ledger.book(topic, record)
        if expected is None:
            self._outputs.skip(topic, record.offset)
            self._verdict.counts["records without output"] += 1
            return False
        return self._outputs.expect(expected)
