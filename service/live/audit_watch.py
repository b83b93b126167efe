"""The proofs that audits have made of a LIVE partition. Looked up about once a minute, for people only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from snapreplay.app import names
from snapreplay.errors import SnapreplayError
from snapreplay.service.clock import time_of
from snapreplay.service.control.status import AuditProof
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.runtime.tasks import cancel_and_wait, turn_in, within
from snapreplay.snapshots.proof.proven import Proof, from_metadata

log = logging.getLogger("snapreplay.partition")

WATCH_SECONDS = 60.0


class AuditWatch:
    """Lives and dies with one LIVE incarnation."""

    def __init__(self, context: Context, reporter: Reporter) -> None:
        self._context = context
        self._reporter = reporter
        self._told_batch = -1
        self._asked = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._watch())

    def look(self) -> None:
        """Look at once: a proof was recorded."""
        self._asked.set()

    async def close(self) -> None:
        """Withdraw what was seen: the partition may have another owner now."""
        await cancel_and_wait(self._task)
        self._reporter.note(audited=None)

    async def _watch(self) -> None:
        """Watch what audits prove; an answer that does not come is shown as such, and nothing depends on it."""
        number, wait_seconds = self._context.partition, turn_in(WATCH_SECONDS / 10)
        while True:
            await within(wait_seconds, self._asked)
            self._asked.clear()
            wait_seconds = turn_in(WATCH_SECONDS, least_seconds=WATCH_SECONDS / 2)
            try:
                self._reporter.note(audited=await self._proofs())
            except SnapreplayError as error:
                self._reporter.note(audited=None)
                log.debug("partition %d: not known what audits have proved: %s", number, error)
            except Exception:  # a defect here must not end the watch, nor the partition
                log.exception("partition %d: unexpected error", number)

    async def _proofs(self) -> tuple[AuditProof, ...]:
        source = self._context.increments
        group_id = names.audit_group(self._context.app.app_id)
        found = await self._context.cluster.committed_offsets(group_id, [source])
        if source not in found:
            return ()
        proofs = self._of_this_log(from_metadata(found[source].metadata).proofs)
        return tuple(
            AuditProof(
                each.level.value,
                each.batch,
                each.offset,
                each.digest,
                each.snapshot_id,
                each.app_version,
                time_of(each.at_ms),
            )
            for each in sorted(proofs, key=lambda each: each.offset, reverse=True)
        )

    def _of_this_log(self, proofs: Sequence[Proof]) -> list[Proof]:
        """Leave out the proofs of batches that the log does not have: they would say that nothing is left to audit."""
        last_batch = self._reporter.status.batch
        if last_batch is None:
            return []
        ahead = max((each.batch for each in proofs), default=-1)
        if ahead > max(last_batch, self._told_batch):
            self._told_batch = ahead
            log.warning(
                "partition %d: an audit has proven batch %d, but the last increment is batch %d: increments were lost,"
                " or the topic is another one. The proof does not count here; `snapreplay audit --since-last` says"
                " what became of that batch",
                self._context.partition,
                ahead,
                last_batch,
            )
        return [each for each in proofs if each.batch <= last_batch]
