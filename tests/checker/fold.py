"""Input records in the order the increments say, through the app by hand, against the outputs and the digests."""

from __future__ import annotations

from collections.abc import Mapping

from tests.checker import wire
from tests.checker.outputs import Outputs
from tests.checker.reading import Bounds, Cursor, Logs, Record
from tests.checker.state import DigestCheck, Image, Ledger
from tests.checker.verdict import Check, Verdict


class Fold:
    """One partition's input, outputs and state, as far as the increments have covered it.

    Where T-ZengLiang was trimmed, the order of several inputs before its first increment is not written down any more:
    there the outputs say it. Where an input was trimmed, the fold begins with the state of a snapshot.
    """

    def __init__(
        self,
        logs: Logs,
        partition: int,
        inputs: Mapping[str, Bounds],
        outputs: Outputs,
        output_topic: str,
        verdict: Verdict,
    ) -> None:
        self._logs = logs
        self._partition = partition
        self._inputs = inputs
        self._outputs = outputs
        self._output_topic = output_topic
        self._verdict = verdict
        self._cursors: dict[str, Cursor] = {}
        self._ledger: Ledger | None = None
        self._check = DigestCheck("fold of the input", verdict)

    def begin(self, first: wire.Increment, image: Image | None, where: str) -> None:
        """With the first increment that is there. Everything before the end of its batch is folded now."""
        trimmed = [t for t, start in first.start_offsets.items() if self._inputs[t].start > start]
        if trimmed:
            self._begin_later(first, image, f"{where}: inputs {', '.join(trimmed)} were trimmed")
            return
        self._ledger = Ledger()
        self._seek(first.start_offsets)
        self._in_order_of_outputs(first.positions)
        self._check.compare(first, self._ledger, where)

    def begin_anew(self, first: wire.Increment, image: Image | None, where: str) -> None:
        """What was is not judged by what comes."""
        who = "its owner" if first.begun_by_owner else "an operator's decision"
        self._begin_later(first, image, f"{where}: {who} begins the chain anew")

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
        promised = found.outputs.get(self._output_topic, 0)
        if visible != promised and not trimmed:
            what = f"batch {found.batch} is committed with {promised} outputs, {visible} of them are visible"
            self._verdict.add(Check.ATOMICITY, where, what)
        if visible == promised:
            self._compare_sent(found, visible, where)
        self._check.compare(found, self._ledger, where)

    def _compare_sent(self, found: wire.Increment, visible: int, where: str) -> None:
        self._verdict.counts["batches whose outputs were hashed"] += 1
        recorded = found.outputs_xxh64.get(self._output_topic)
        sent = self._outputs.sent_xxh64 if visible else None
        if recorded != sent:
            what = f"batch {found.batch} is committed with outputs of hash {recorded}, those visible have {sent}"
            self._verdict.add(Check.ATOMICITY, where, what)

    def end(self, positions: Mapping[str, int]) -> None:
        """`positions` of the last increment."""
        for topic, position in positions.items():
            bounds = self._inputs[topic]
            if position > bounds.stable:
                what = f"position {position} lies behind the end of the input, {bounds.stable}"
                self._verdict.add(Check.EXACTLY_ONCE, f"{topic}-{self._partition}", what)
        if self._ledger is not None:
            self._outputs.finish()
        else:
            what = f"{self._output_topic}-{self._partition}: the outputs after that, either"
            self._verdict.unchecked.append(what)

    def _begin_later(self, first: wire.Increment, image: Image | None, why: str) -> None:
        self._ledger = None
        self._verdict.unchecked.append(f"{why}: outputs of what was processed before")
        self._try_to_begin(first, image)

    def _try_to_begin(self, found: wire.Increment, image: Image | None) -> None:
        """Behind this batch, if its state is known and the inputs reach back to it."""
        ahead = all(self._inputs[t].start <= position for t, position in found.positions.items())
        if image is None or not ahead:
            return
        self._seek(found.positions)
        self._verdict.counts["outputs not checked"] += self._outputs.pass_over()
        self._ledger = Ledger.of(image.entries)

    def _seek(self, offsets: Mapping[str, int]) -> None:
        self._outputs.begin(dict(offsets))
        self._cursors = {
            topic: Cursor(
                self._logs.read(topic, self._partition, offset, self._inputs[topic].stable)
            )
            for topic, offset in offsets.items()
        }

    def _in_order_of_outputs(self, ends: Mapping[str, int]) -> None:
        while (head := self._outputs.head()) is not None:
            end = ends.get(head.topic, 0)
            record = self._cursors[head.topic].below(end) if head.input_offset < end else None
            if record is None:
                break
            self._expect(head.topic, record)
        for topic, end in ends.items():
            while (record := self._cursors[topic].below(end)) is not None:
                self._expect(topic, record)

    def _range(self, found: wire.Range, skipped: list[tuple[str, int, int]], where: str) -> int:
        """How many outputs of its records are visible."""
        visible = records = 0
        cursor = self._cursors[found.topic]
        while (record := cursor.below(found.end)) is not None:
            if record.offset < found.start:
                at = f"{found.topic}-{self._partition}-{record.offset}"
                what = "this input record lies below the covered position, and in no range"
                self._verdict.add(Check.EXACTLY_ONCE, at, what)
                continue
            records += 1
            if any(t == found.topic and s <= record.offset < e for t, s, e in skipped):
                self._outputs.skip(found.topic, record.offset)
                self._verdict.counts["skipped input records"] += 1
                continue
            visible += self._expect(found.topic, record)
        if records != found.records:
            what = f"{found} has {records} input records"
            self._verdict.add(Check.EXACTLY_ONCE, where, what)
        return visible

    def _expect(self, topic: str, record: Record) -> bool:
        assert self._ledger is not None
        self._verdict.counts["input records"] += 1
        booked = self._ledger.book(topic, record.offset, record.key or b"", record.value or b"")
        return self._outputs.expect(booked)
