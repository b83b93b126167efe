"""A journal of the answers to a service's commits, and of what its recoveries and its warm copies found: JSON
lines.

Runs in the process of the service under test, so this is the one module here that knows the service. A line is written
before the service hears the answer, and is one write: lines of several processes in one file do not mix.

    {"kind": "commit", "partition": 0, "result": "committed", "offset": 17, "crc32": 123, "pid": 42}
    {"kind": "restore", "partition": 0, "owner_epoch": 20, "batch": 5, "offset": 17, "digest": "3:…:…", "pid": 42}
    {"kind": "copy", "partition": 0, "batch": 5, "digest": "3:…:…", "pid": 42}

`result` is "committed" (answered OK), "refused" (never committed: the broker refused a record of it), or "doubt"
(anything else, a fence included: it may be the second answer to a commit that was done). `crc32` is that of the
transaction's last record, an increment or a claim, and `offset` where it was acknowledged, null if it was not.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from snapreplay.app.record import Output
from snapreplay.service.control.status import StandbyStatus, StatusBoard
from snapreplay.service.core.kafka_errors import RefusedRecord
from snapreplay.service.core.phase import CopyState
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import LogRecord
from snapreplay.service.recovery.driver import RecoveryDriver

OUTCOMES = "SNAPREPLAY_TEST_OUTCOMES"
"""Path of the journal; appended to."""


class Journal:
    """One line, one write. Opened for each: nothing is left to be closed in a process that may end at any moment."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, **fields: object) -> None:
        line = json.dumps(fields | {"pid": os.getpid()}).encode() + b"\n"
        with self._path.open("ab", buffering=0) as journal:
            journal.write(line)


class Producing:
    """`ports.Producer` around another one."""

    def __init__(self, producer: Any, journal: Journal) -> None:
        self._producer = producer
        self._journal = journal

    async def commit(self, partition: int, outputs: Sequence[Output], records: Sequence[LogRecord]) -> tuple[int, ...]:
        fields = {"kind": "commit", "partition": partition, "crc32": crc32(records[-1].value)}
        try:
            offsets: tuple[int, ...] = await self._producer.commit(partition, outputs, records)
        except BaseException as error:
            refused = isinstance(error, RefusedRecord)
            result = "refused" if refused else "doubt"
            self._journal.write(**fields, result=result, offset=None, error=type(error).__name__)
            raise
        self._journal.write(**fields, result="committed", offset=offsets[-1])
        return offsets

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)


def install(path: Path) -> None:
    """Install the journal for all partitions of this process, before its service starts; once."""
    journal = Journal(path)
    fence, recover, publish = KafkaCluster.fence, RecoveryDriver.recover, StatusBoard.publish_standby
    copies: dict[int, tuple[int | None, str | None]] = {}

    async def fence_and_watch(self: KafkaCluster, transactional_id: str) -> Any:
        return Producing(await fence(self, transactional_id), journal)

    async def recover_and_tell(self: RecoveryDriver) -> Any:
        recovered = await recover(self)
        chain = recovered.chain
        journal.write(
            kind="restore",
            partition=self._context.partition,
            owner_epoch=chain.owner_epoch,
            batch=chain.batch,
            offset=chain.last_offset,
            digest=str(self._store.digest),
        )
        return recovered

    def publish_and_tell(self: StatusBoard, partition: int, status: StandbyStatus | None) -> None:
        publish(self, partition, status)
        if status is None or status.state != CopyState.WARM:
            copies.pop(partition, None)
        elif copies.get(partition) != (copy := (status.batch, status.digest)):
            copies[partition] = copy
            journal.write(kind="copy", partition=partition, batch=status.batch, digest=status.digest)

    setattr(KafkaCluster, "fence", fence_and_watch)  # noqa: B010 - mypy refuses to see a method replaced
    setattr(RecoveryDriver, "recover", recover_and_tell)  # noqa: B010 - the same
    setattr(StatusBoard, "publish_standby", publish_and_tell)  # noqa: B010 - the same


def install_from_environment() -> None:
    path = os.environ.get(OUTCOMES)
    if path:
        install(Path(path))
