"""The claim: one committed record that says who owns the partition, and the proof that we can see it.

A leader cut off from its peers keeps answering with a stale end, and a foreign open transaction pins the last
stable offset: without the claim 66 of 360 restores after a correct fence were wrong, with it none of 1,426
(measured on three Kafka 4.3.1 brokers).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from snapreplay.app.record import InputRecord
from snapreplay.service.core import effects, events, refusals
from snapreplay.service.ports import Bounds, LogRecord, Reader
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.increments import newer_claim
from snapreplay.service.topics.reading import reading
from snapreplay.snapshots.format.envelope import RecordKind, encode, headers_of, kind_of
from snapreplay.snapshots.format.records import Claim
from snapreplay.snapshots.log.place import decode_as

# `end <= F` is normal for up to 73 ms after the commit on a healthy cluster (measured).
ASK_AGAIN_SECONDS = 0.02


def claim_record(context: Context, claim_id: str) -> LogRecord:
    identity = context.identity
    claim = Claim(
        claim_id=claim_id,
        app_id=context.app.app_id,
        cluster_id=context.view.cluster_id,
        process_id=identity.process_id,
        instance_id=identity.instance_id,
        host=identity.host,
        pid=identity.pid,
        started_at_ms=identity.started_at_ms,
    )
    return LogRecord(context.increments.topic, encode(claim), headers=headers_of(claim))


async def await_claim(
    context: Context, reader: Reader, effect: effects.SeeClaim, claimed_at: float
) -> events.Event:
    """Ask this client until it delivers the claim, for the grace time; then the answer is `ClaimHidden`.

    `claimed_at` is the loop's time when the claim was acknowledged. Time counts up to a question, not up to its
    answer: what was asked before a standstill of the process proves nothing after it.

    Raises:
        ForeignClaim: the record at the claim's offset is not ours.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        asked_at = loop.time()
        bounds = await reader.bounds(context.increments)
        if bounds.end_offset > effect.offset:
            record = await reader.read_at(context.increments, effect.offset)
            # None: the connection broke meanwhile, and the new one leads to a stale leader.
            if record is not None:
                return await _delivered(context, reader, effect, bounds, record)
        if asked_at - began > context.settings.timeouts.claim_grace_ms / 1000:
            return await _hidden(context, bounds, began - claimed_at)
        await asyncio.sleep(ASK_AGAIN_SECONDS)


@asynccontextmanager
async def reader_behind_claim(
    context: Context, claim_id: str, offset: int
) -> AsyncIterator[tuple[Reader, events.ClaimSeen]]:
    """Return a reader that has delivered our claim, so that it sees whatever was committed before our fence. A new one
    is made, with addresses shuffled, until one does.

    Raises:
        HangingTransaction, ForeignClaim: none did, not even one that was made `timeouts.metadata_ms` after the claim.
    """
    loop = asyncio.get_running_loop()
    claimed_at = loop.time()
    see = effects.SeeClaim(claim_id, offset, fresh_client=True)
    while True:
        async with reading(context.cluster) as reader:
            event = await await_claim(context, reader, see, claimed_at)
            if isinstance(event, events.ClaimSeen):
                yield reader, event
                return
        patience_ms = context.settings.timeouts.metadata_ms
        if isinstance(event, events.ClaimHidden) and event.waited_ms > patience_ms:
            offsets = (offset, event.end_offset, event.high_watermark)
            raise refusals.claim_hidden(context.expected, *offsets)


async def _delivered(
    context: Context,
    reader: Reader,
    effect: effects.SeeClaim,
    bounds: Bounds,
    record: InputRecord,
) -> events.Event:
    """Look whether our claim was delivered: it is the record at `end - 2` unless something was written after it."""
    log = context.increments
    if kind_of(record.value or b"") is not RecordKind.CLAIM:
        raise refusals.foreign_claim(str(log), effect.offset, "another record")
    claim = decode_as(Claim, record.value or b"", log, effect.offset)
    if claim.claim_id != effect.claim_id:
        raise refusals.foreign_claim(str(log), effect.offset, repr(claim))
    newer = None
    if bounds.end_offset - 2 > effect.offset:
        newer = await newer_claim(reader, log, effect.offset, bounds.end_offset)
    return events.ClaimSeen(bounds.start_offset, newer)


async def _hidden(context: Context, bounds: Bounds, waited_seconds: float) -> events.Event:
    async with reading(context.cluster, read_committed=False) as plain:
        high_watermark = (await plain.bounds(context.increments)).end_offset
    return events.ClaimHidden(bounds.end_offset, high_watermark, int(waited_seconds * 1000))
