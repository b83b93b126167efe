"""Finds and judges what jobs propose for a LIVE partition, one proposal at a time, beside the processing.

A proposal is found in two ways: a request names its offset, or the snapshots topic has grown by records that are not
the owner's own. A fault in a proposal is reported and remembered, and changes nothing for the partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from msgspec import Struct

from snapreplay.app.record import InputRecord
from snapreplay.errors import DamagedError, SnapreplayError, UnknownFormatError
from snapreplay.service.clock import wall_ms, wall_time
from snapreplay.service.control.operations import OnDone, OperationState
from snapreplay.service.control.status import RejectedProposal
from snapreplay.service.core import adoption
from snapreplay.service.core.adoption import NOT_FINAL, Reason, Rejection, Standing
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, OffsetTrimmed
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.witness import shows_cut
from snapreplay.service.ports import Bounds, Reader, TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.runtime.tasks import cancel_and_wait
from snapreplay.service.topics.reading import reading
from snapreplay.service.topics.snapshots import hashed_digests, manifest_in
from snapreplay.snapshots.format.envelope import RECORD_BYTES_MAX, RecordKind, kind_of
from snapreplay.snapshots.format.records import Increment, Manifest
from snapreplay.snapshots.log.loading import SnapshotMissing
from snapreplay.snapshots.log.reading import decode_as

log = logging.getLogger("snapreplay.partition")

LOOKED_OFFSETS_MAX = 4096  # of one look; the next look continues from there
REJECTIONS_KEPT = 16


class Examined(Struct, frozen=True):
    """A proposal whose every entry was hashed. `increment` is that of its batch."""

    manifest: Manifest
    offset: int
    increment: Increment


StandingNow = Callable[[int], Standing]
"""What the owner knows now, given the first offset of the snapshots topic."""

Adopt = Callable[[Examined, OnDone], None]
"""Hands the pointer of a proposal to the chain. The callback is called when an increment has it."""

Outdate = Callable[[], None]
"""Asks for a snapshot of the owner's own, also if nothing has changed."""


class Adopter:
    """The adopter of one LIVE incarnation."""

    def __init__(
        self, context: Context, reporter: Reporter, standing: StandingNow, adopt: Adopt, outdate: Outdate
    ) -> None:
        self._context, self._reporter = context, reporter
        self._standing, self._adopt, self._outdate = standing, adopt, outdate
        self._asked: list[tuple[int, OnDone]] = []
        self._unseen: Bounds | None = None
        self._looked_to = 0
        self._topics_before = 0  # replaced ones: what was read there says nothing of today's
        self._task: asyncio.Task[None] | None = None

    def request(self, offset: int, done: OnDone) -> None:
        """Judge the proposal whose manifest is at `offset`; `done` gets the verdict."""
        if not self._adopts:
            why = "snapshot.by is owner, so no proposal is adopted: start the process with `--set snapshot.by=both`"
            done(OperationState.FAILED, None, why)
            return
        self._asked.append((offset, done))
        self._begin()

    def seen(self, bounds: Bounds) -> None:
        """Scan the records since the last scan for proposals, unless the owner is writing a snapshot. `bounds`: of the
        snapshots topic, now."""
        standing = self._standing(bounds.start_offset)
        if standing.under_way:
            return
        newest = standing.newest
        behind = newest.manifest_offset + 1 if newest is not None else 0
        start_offset = max(self._looked_to, bounds.start_offset, behind)
        if start_offset < bounds.end_offset:
            self._unseen = Bounds(start_offset, bounds.end_offset)
            self._begin()

    def topic_replaced(self) -> None:
        """Forget the old snapshots topic, whose offsets mean nothing any more."""
        self._looked_to, self._unseen = 0, None
        self._topics_before += 1
        self._reporter.rejected(())

    async def close(self) -> None:
        """Stop judging, and fail the requests that wait."""
        if self._task is not None:
            await cancel_and_wait(self._task)
        asked, self._asked = self._asked, []
        for _, done in asked:
            done(OperationState.FAILED, None, "the partition was released before it was judged")

    @property
    def _adopts(self) -> bool:
        return self._context.settings.snapshot.by != "owner"

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """Work until neither requests nor unscanned records are left."""
        while self._asked or self._unseen is not None:
            try:
                await self._with_readers()
            except SnapreplayError as error:
                self._give_up(error.message)
                log.warning("partition %d: proposals cannot be read: %s", self._context.partition, error)
            except Exception as error:  # a defect here must not end the partition
                self._give_up(repr(error))
                log.exception("partition %d: unexpected error", self._context.partition)

    def _give_up(self, why: str) -> None:
        """Fail the first request; the next scan repeats the rest."""
        self._unseen = None
        if self._asked:
            _, done = self._asked.pop(0)
            done(OperationState.FAILED, None, f"it could not be read: {why}")

    async def _with_readers(self) -> None:
        context = self._context
        own = (context.snapshots.topic, context.increments.topic)
        expected = self._standing(0).chain.expected_ids
        ids = {topic: expected[topic] for topic in own if expected.get(topic)}
        async with (
            reading(context.cluster, read_committed=False, large=True, topic_ids=ids) as snapshots,
            reading(context.cluster, topic_ids=ids) as increments,
        ):
            while self._asked:
                offset, done = self._asked[0]
                await self._judge(snapshots, increments, offset, done)
                del self._asked[0]
            if self._unseen is not None:
                await self._look_through(snapshots, increments, self._unseen)
                self._unseen = None

    async def _look_through(self, snapshots: Reader, increments: Reader, unseen: Bounds) -> None:
        """Look at the newest proposal first: those before it are superseded by then."""
        start_offset, topics_before = unseen.start_offset, self._topics_before
        end_offset = min(unseen.end_offset, start_offset + LOOKED_OFFSETS_MAX)
        found: list[int] = []
        async for records in snapshots.read(self._context.snapshots, start_offset, end_offset):
            for record in records:
                manifest = manifest_in(record.value or b"", self._context.snapshots, record.offset)
                if manifest is not None and manifest.proposed_by is not None:
                    found.append(record.offset)
                elif manifest is not None and self._is_ahead(manifest, record.offset):
                    end_offset = min(end_offset, record.offset)  # until a pointer lies behind it
        for offset in reversed(found) if self._adopts else ():
            rejection = await self._judge(snapshots, increments, offset, _no_requester)
            if rejection is not None and rejection.reason in NOT_FINAL:
                end_offset = offset  # and look at it again
        if topics_before == self._topics_before:
            self._looked_to = end_offset

    def _is_ahead(self, manifest: Manifest, offset: int) -> bool:
        """Say whether a manifest without a proposer is ahead of the log: it was forged, unless a newer owner has fenced
        us. The next recovery would take it for the proof of a cut log, unless a newer pointer lies behind it."""
        chain = self._standing(0).chain
        if not shows_cut(manifest, FoundIncrement(chain.last, chain.last_offset)):
            return False
        log.error(
            "partition %d: the manifest at offset %d of %s is of batch %d, but the last increment is batch %d: this"
            " owner did not write it. A snapshot is taken now, so that the next recovery ignores it",
            self._context.partition,
            offset,
            self._context.snapshots,
            manifest.batch,
            chain.last.batch,
        )
        self._outdate()
        return True

    async def _judge(self, snapshots: Reader, increments: Reader, offset: int, done: OnDone) -> Rejection | None:
        """Say why the proposal is not adopted; None: it is adopted, or was judged before."""
        for known in self._reporter.facts.rejected_proposals:
            if known.manifest_offset == offset:
                done(OperationState.FAILED, None, f"{known.reason}: {known.detail}")
                return None
        topics_before = self._topics_before
        try:
            found = await examine(self._context, snapshots, increments, offset, self._standing)
            start_offset = (await snapshots.bounds(self._context.snapshots)).start_offset
            # Asked again: hashing takes long. From here to the pointer nothing else happens.
            _raise_if(adoption.refuse_manifest(found.manifest, offset, self._standing(start_offset)))
        except Rejected as rejected:
            rejection = rejected.rejection
            if topics_before == self._topics_before:
                self._reject(offset, rejection)
            done(OperationState.FAILED, None, f"{rejection.reason}: {rejection.detail}")
            return rejection
        self._adopt(found, self._when_pointed(found, done))
        return None

    def _reject(self, offset: int, rejection: Rejection) -> None:
        usual = rejection.reason in {*NOT_FINAL, Reason.SUPERSEDED}
        log.log(
            logging.INFO if usual else logging.WARNING,
            "partition %d: the proposal at offset %d of %s is rejected (%s): %s",
            self._context.partition,
            offset,
            self._context.snapshots,
            rejection.reason,
            rejection.detail,
        )
        if rejection.reason in NOT_FINAL:
            return
        self._context.metrics.proposal_ended(rejection.reason)
        rejected = RejectedProposal(offset, rejection.reason, rejection.detail, wall_time())
        self._reporter.rejected((rejected, *self._reporter.facts.rejected_proposals[: REJECTIONS_KEPT - 1]))

    def _when_pointed(self, found: Examined, done: OnDone) -> OnDone:
        manifest = found.manifest

        def ended(state: OperationState, snapshot_id: str | None, detail: str) -> None:
            if state is OperationState.SUCCEEDED and snapshot_id == manifest.snapshot_id:
                self._context.metrics.proposal_ended("adopted")
                log.info(
                    "partition %d: snapshot %s of batch %d is adopted, proposed by %s",
                    self._context.partition,
                    manifest.snapshot_id,
                    manifest.batch,
                    manifest.proposed_by,
                )
                done(state, snapshot_id, detail)
            else:
                done(OperationState.FAILED, None, detail or "no increment points to it")

        return ended


def _no_requester(state: OperationState, snapshot_id: str | None, detail: str) -> None:
    """Do nothing: a scan of the topic has no requester."""


class Rejected(Exception):
    """Carries a rejection out of the reading."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.rejection = Rejection.of(reason, detail)


async def examine(
    context: Context, snapshots: Reader, increments: Reader, offset: int, standing: StandingNow
) -> Examined:
    """Read and judge the proposal whose manifest lies at `offset`. Between two steps of a millisecond others run.

    `snapshots` and `increments` read these topics by their ids.

    Raises:
        Rejected: it is not to be adopted.
    """
    manifest = await _manifest(snapshots, context.snapshots, offset)
    start_offset = (await snapshots.bounds(context.snapshots)).start_offset
    _raise_if(adoption.refuse_manifest(manifest, offset, standing(start_offset)))
    increment = await _increment(increments, context.increments, manifest.increment_offset)
    _raise_if(adoption.refuse_increment(manifest, increment, wall_ms()))
    try:
        found = await hashed_digests(snapshots, context.snapshots, manifest)
    except SnapshotMissing as error:
        raise Rejected(Reason.CHUNK_MISSING, error.message) from error
    except (DamagedError, UnknownFormatError) as error:
        raise Rejected(Reason.CHUNK_DAMAGED, error.message) from error
    _raise_if(adoption.refuse_entries(manifest, found))
    return Examined(manifest, offset, increment)


def _raise_if(rejection: Rejection | None) -> None:
    if rejection is not None:
        raise Rejected(*rejection)


async def _manifest(reader: Reader, place: TopicPartition, offset: int) -> Manifest:
    record = await _at(reader, place, offset)
    if record is None:
        raise Rejected(Reason.NOT_THERE, f"{place} has no record at offset {offset}")
    value = record.value or b""
    if len(value) > RECORD_BYTES_MAX:
        raise Rejected(
            Reason.OUT_OF_BOUNDS, f"its manifest has {len(value)} bytes, but a writer makes at most {RECORD_BYTES_MAX}"
        )
    try:
        if kind_of(value) not in {RecordKind.MANIFEST, None}:
            raise Rejected(Reason.NOT_A_MANIFEST, f"{place} has no manifest but another record at offset {offset}")
        return decode_as(Manifest, value, place, offset)
    except UnknownFormatError as error:
        raise Rejected(Reason.UNKNOWN_FORMAT, error.message) from error
    except DamagedError as error:
        raise Rejected(Reason.UNREADABLE, error.message) from error


async def _increment(reader: Reader, place: TopicPartition, offset: int) -> Increment:
    record = await _at(reader, place, offset)
    if record is None:
        raise Rejected(
            Reason.INCREMENT_DIFFERS,
            f"{place} has no committed record at offset {offset}, where its increment should be",
        )
    try:
        return decode_as(Increment, record.value or b"", place, offset)
    except (DamagedError, UnknownFormatError) as error:
        raise Rejected(Reason.INCREMENT_DIFFERS, error.message) from error


async def _at(reader: Reader, place: TopicPartition, offset: int) -> InputRecord | None:
    try:
        return await reader.read_at(place, offset)
    except (OffsetTrimmed, OffsetBeyondEnd):
        return None
