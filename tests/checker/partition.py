"""One partition, judged in one pass over its logs."""

from collections.abc import Callable

from tests.checker import wire
from tests.checker.chain import Chain
from tests.checker.fold import Fold
from tests.checker.honesty import Honesty, Told
from tests.checker.outputs import Outputs
from tests.checker.reading import Logs, Names, Record
from tests.checker.snapshots import Point, SnapshotLog
from tests.checker.state import DigestCheck, Image
from tests.checker.verdict import Check, Verdict


class PartitionJudge:
    """Use once: `judge()`, then look at `verdict`."""

    def __init__(self, logs: Logs, names: Names, partition: int, told: Told) -> None:
        self.verdict = Verdict()
        self._logs = logs
        self._names = names
        self._where = f"{names.increments}-{partition}"
        # Outputs before increments: an output that is seen has its increment within the bounds.
        output_bounds = logs.bounds(names.output, partition)
        self._bounds = logs.bounds(names.increments, partition)
        inputs = {topic: logs.bounds(topic, partition) for topic in names.inputs}
        snapshot_bounds = logs.bounds(names.snapshots, partition)
        self._snapshots = SnapshotLog(logs, names.snapshots, partition, snapshot_bounds)
        self._chain = Chain(names.app_id, self._where, self._bounds.start, self.verdict)
        self._honesty = Honesty(told, self._where, self._bounds, self.verdict)
        odd_output = self._odd(f"{names.output}-{partition}")
        seen = logs.both(names.output, partition, output_bounds, odd_output)
        outputs = Outputs(names.output, partition, seen, self.verdict)
        outputs.trimmed = output_bounds.start > 0
        self._fold = Fold(logs, partition, inputs, outputs, names, self.verdict)
        self._records = logs.both(names.increments, partition, self._bounds, self._odd(self._where))
        self._image: Image | None = None
        self._image_check = DigestCheck("changes", self.verdict)
        self._points: dict[int, Point] = {}
        self._pointers: dict[wire.Pointer, set[str]] = {}
        self._wanted: frozenset[int] = frozenset()

    @property
    def sent(self) -> wire.Sums | None:
        """What was sent to the internal topic, if that is known."""
        return self._fold.sent

    def judge(self) -> None:
        self._snapshots.scan(self.verdict)
        self._wanted = self._snapshots.wanted()
        for record in self._records:
            self._honesty.visit(record)
            if record.committed:
                self._take(record)
            else:
                self.verdict.counts["aborted records in the increments"] += 1
        self._end()

    def _take(self, record: Record) -> None:
        if wire.is_foreign(record.value, record.headers):
            self.verdict.counts["foreign records"] += 1
            return
        value = record.value or b""
        try:
            entry = wire.decode(value)
        except wire.Damaged as error:
            self.verdict.add(Check.CHAIN, f"{self._where}-{record.offset}", f"damaged: {error}")
            return
        if isinstance(entry, wire.Claim):
            self.verdict.counts["claims"] += 1
            self._honesty.claimed(record.offset, self._chain.last_offset, self._chain.last)
            self._chain.claim(record.offset, entry)
        elif isinstance(entry, wire.Changes):
            self._chain.changes(entry, value)
        elif isinstance(entry, wire.Increment):
            self._increment(record.offset, entry)
        else:
            what = f"a {type(entry).__name__.lower()} among the increments"
            self.verdict.add(Check.CHAIN, f"{self._where}-{record.offset}", what)

    def _increment(self, offset: int, found: wire.Increment) -> None:
        self.verdict.counts["increments"] += 1
        where = f"{self._where}-{offset}"
        self._honesty.increased(found)
        if self._chain.is_orphan(offset, found):
            return
        before = self._chain.last
        changes = self._chain.increment(offset, found)
        if before is None or found.begins_chain:
            self._begin(offset, found, where, again=before is not None)
        else:
            self._advance_image(offset, found, changes)
            self._fold.batch(found, self._image, where)
        self._image_check.compare(found, self._image, where)
        if offset in self._wanted:
            self._points[offset] = Point(found.batch, found.digest, found.positions)
        for pointer in reversed(found.pointers):
            snapshots_id = found.topic_ids.get(self._names.snapshots, "")
            self._pointers.setdefault(pointer, set()).add(snapshots_id)

    def _begin(self, offset: int, found: wire.Increment, where: str, *, again: bool) -> None:
        if found.batch == 0:
            self._image = Image()
        else:
            self._image = self._loaded(offset, found)
            if found.begins_chain and self._image is None:
                self._image = self._loaded(found.owner_epoch, found)
        if found.batch > 0 and not again:
            what = f"{where}: the log begins with batch {found.batch}; the chain before it was trimmed"
            self.verdict.unchecked.append(what)
        if again or found.begins_chain:
            self._fold.begin_chain(found, self._image, where)
        else:
            self._fold.begin(found, self._image, where)

    def _advance_image(self, offset: int, found: wire.Increment, changes: list[wire.Changes]) -> None:
        """Advance the image by the changes. Lean batches have none: then from the next snapshot on, if there is
        one."""
        if self._image is not None and (found.changes is not None or not found.happened):
            for store in found.cleared:
                self._image.clear(store)
            for each in changes:
                self._image.apply(each)
            return
        self.verdict.counts["batches without changes"] += 1
        self._image = self._loaded(offset, found)

    def _loaded(self, offset: int, found: wire.Increment) -> Image | None:
        """The state after the increment at `offset`, from a snapshot of it. `found`: one of the same log."""
        log = self._names.increments
        log_id = found.topic_ids.get(log, "")
        wanted = offset in self._wanted
        manifest = self._snapshots.covering(offset, log, log_id) if wanted else None
        return Image(self._snapshots.stored(manifest)) if manifest is not None else None

    def _end(self) -> None:
        self._chain.end()
        last = self._chain.last
        self._honesty.end(last)
        if last is None:
            what = f"no increment, not even the genesis (log start {self._bounds.start})"
            self.verdict.add(Check.CHAIN, self._where, what)
            return
        self._fold.end(last.positions)
        self._judge_pointers(last)
        self._snapshots.judge_last(last.pointers, self.verdict)
        if self._bounds.high > self._bounds.stable:
            count = self._bounds.high - self._bounds.stable
            what = f"{self._where}: {count} offsets above the last stable one, in open transactions"
            self.verdict.unchecked.append(what)

    def _judge_pointers(self, last: wire.Increment) -> None:
        """All that ever were, but those into a T-QuanLiang that was deleted: no increment of the new one has them."""
        for pointer, ids in self._pointers.items():
            if last.topic_ids.get(self._names.snapshots, "") in ids:
                self._snapshots.judge(pointer, self._points, self.verdict)
            else:
                self.verdict.counts["snapshots deleted with their topic"] += 1

    def _odd(self, where: str) -> Callable[[int, str], None]:
        def note(offset: int, what: str) -> None:
            self.verdict.add(Check.ORDER, f"{where}-{offset}", what)

        return note
