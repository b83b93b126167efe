"""The work of the process that audits one partition: it does what its order says, and answers in any case."""

from __future__ import annotations

import os
import subprocess
import traceback
from typing import Any

import msgspec

from snapreplay.app.app import App
from snapreplay.app.load import checked_app
from snapreplay.errors import SnapreplayError, StopError
from snapreplay.service.auditing.process import REPEAT
from snapreplay.service.blocking import BlockingProofs, BlockingReader
from snapreplay.service.clock import wall_ms
from snapreplay.service.config.settings import Settings
from snapreplay.service.control.audit_run import FINDINGS_MAX, AuditAnswer, AuditOrder, Finding
from snapreplay.service.runtime import child_process
from snapreplay.snapshots.jobs.fixed_logs import PartitionLogs
from snapreplay.snapshots.jobs.one_partition import OnePartition
from snapreplay.snapshots.proof.replay import Segment, repeated
from snapreplay.snapshots.proof.report import AuditReport


class Repetition(msgspec.Struct, frozen=True):
    """The order to a process with another hash seed: to replay a segment once more."""

    order: AuditOrder
    segment: Segment


def answer_to(encoded: bytes) -> bytes:
    """Audit, and return the encoded `AuditAnswer`. Nothing is raised: an error of ours is a problem, any other one a
    defect."""
    try:
        answer = _answer(_audited(msgspec.json.decode(encoded, type=AuditOrder)))
    except SnapreplayError as error:
        answer = AuditAnswer(problem=str(error))
    except MemoryError:
        answer = AuditAnswer(problem="memory is short")
    except Exception:  # noqa: BLE001 - the service logs it
        answer = AuditAnswer(defect=traceback.format_exc(limit=-10))
    return msgspec.json.encode(answer)


def repeated_by(encoded: bytes) -> bytes:
    """Replay a segment, and return the fingerprint of the first difference."""
    again = msgspec.json.decode(encoded, type=Repetition)
    app = _app_of(again.order)
    assert app is not None  # noqa: S101 - a replay has one
    with BlockingReader(Settings(**again.order.settings)) as reader:
        logs = PartitionLogs(reader, again.order.app_id, again.order.partition)
        return repeated(app, again.segment, logs).encode()


def _audited(order: AuditOrder) -> AuditReport:
    app, settings = _app_of(order), Settings(**order.settings)
    proofs = BlockingProofs(settings, order.app_id, wall_ms())

    def repeat(segment: Segment) -> str:
        return _by_another_seed(Repetition(order, segment))

    with BlockingReader(settings) as reader:
        return OnePartition(reader, order.app_id, order.partition, order.level).audit(proofs, app, repeat)


def _by_another_seed(again: Repetition) -> str:
    words = [*child_process.command("snapreplay.service.auditing.process"), str(os.getpid()), REPEAT]
    environment = child_process.environment({**os.environ, "PYTHONHASHSEED": "1"})
    ended = subprocess.run(
        words, input=msgspec.json.encode(again), stdout=subprocess.PIPE, env=environment, check=False
    )
    if ended.returncode:
        raise StopError(f"the replay by a second process could not run: exit code {ended.returncode}")
    return ended.stdout.decode()


def _app_of(order: AuditOrder) -> App[Any] | None:
    """Import the app, if it is to be replayed.

    Raises:
        UsageError, StopError: it cannot be imported, or its code was changed since the service was started.
    """
    if not order.app:
        return None
    app = checked_app(order.app, order.app_id)
    if app.version != order.app_version:
        raise StopError(
            f"{order.app} is version {app.version} of the app now, but this service runs version {order.app_version}",
            hint="restart the service with the code that is there, then audit again",
        )
    return app


def _answer(report: AuditReport) -> AuditAnswer:
    (chain,) = report.chains
    found = [Finding(each.check, each.topic, each.partition, each.offset, each.detail) for each in report.findings]
    return AuditAnswer(
        chain.first_batch,
        None if chain.proven is None else chain.proven.batch,
        None if chain.proven is None else chain.proven.level,
        report.notes.get("segments_without_input", 0),
        len(found),
        tuple(found[:FINDINGS_MAX]),
        report.not_recorded,
    )
