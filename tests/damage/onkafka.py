"""The same damage on a real broker: an app's two topics are written again as an edit left them, again and again."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from confluent_kafka import Producer
from typer.testing import CliRunner

from snapreplay.api.cli.root import app as command_line
from snapreplay.api.server import HttpServer
from snapreplay.service.topics.requirements import KEPT_FOR_EVER
from snapreplay.snapshots.format.envelope import RecordKind, decode
from snapreplay.snapshots.format.records import Increment
from tests.damage.edits import Slot, of_kind
from tests.damage.ends import ends, told
from tests.damage.gallery import INCREMENTS, SNAPSHOTS, Case, Trim
from tests.damage.memory import book, padded
from tests.support.stage import Stage, processed, snapshot
from tests.support.tampering import recreate, trim

DEADLINE_SECONDS = 30.0


class Damaged:
    """An app with the past that `memory.world` has. `prepare` first."""

    def __init__(self, bootstrap_servers: str, app_id: str) -> None:
        self.here = Stage(bootstrap_servers, padded(app_id), snapshot={"chunk_bytes_max": 10_000})
        self.written: dict[str, list[Slot]] = {}
        self.pointed: list[str] = []

    async def prepare(self) -> Damaged:
        await self.here.prepare()
        async with self.here.running() as service:
            for third in range(3):
                for _ in range(2):
                    await self.here.feed(10)
                    await processed(service, {0: self.here.sent})
                if third < 2:
                    await snapshot(service)
        for part in (INCREMENTS, SNAPSHOTS):
            (records,) = await self.here.read(self.topic(part))
            self.written[part] = [Slot(r.offset, r.key, r.value, r.headers) for r in records]
        last = decode(of_kind(self.written[INCREMENTS], RecordKind.INCREMENT)[-1].value or b"")
        assert isinstance(last, Increment)
        self.pointed = [pointer.snapshot_id for pointer in last.pointers]
        return self

    def topic(self, part: str) -> str:
        return f"{self.here.app.app_id}-{part}"

    async def rewrite(self, edits: Any) -> None:
        """Both topics as they were, with these edits made."""
        slots = {
            part: [Slot(s.offset, s.key, s.value, s.headers) for s in were]
            for part, were in self.written.items()
        }
        trims = []
        for part, edit in edits:
            if isinstance(edit, Trim):
                kept = of_kind(slots[part], edit.kind)[edit.number].offset if edit.kind else -1
                trims.append((part, kept))
            else:
                edit(slots[part])
        for part, left in slots.items():
            end_offset = self.written[part][-1].offset + 1
            await asyncio.to_thread(self._write, self.topic(part), left, end_offset)
        for part, offset in trims:
            trim(self.here.bootstrap_servers, self.topic(part), 0, offset)

    def _write(self, topic: str, slots: list[Slot], end_offset: int) -> None:
        """Where there was a marker, or is nothing any more, a foreign record fills the gap."""
        recreate(self.here.bootstrap_servers, topic, 1, KEPT_FOR_EVER)
        producer = Producer({"bootstrap.servers": self.here.bootstrap_servers})
        left = {slot.offset: slot for slot in slots}
        for offset in range(end_offset):
            slot = left.get(offset, Slot(offset, None, b"filler"))
            headers: list[Any] = list(slot.headers)
            producer.produce(topic, key=slot.key, value=slot.value, partition=0, headers=headers)
        assert producer.flush(DEADLINE_SECONDS) == 0

    async def outcome(self, case: Case) -> str:
        """How a service that is started then ends up; the exit code of `restore-status --watch` is that of the row."""
        http = HttpServer(on_bound=lambda _: None)
        service = self.here.service(http=http, changelog={"enabled": case.changes})
        await service.start()
        try:
            host, port = service.http_address or ("", 0)
            code = await asyncio.to_thread(_watch, f"http://{host}:{port}")
            (status,) = service.control.partitions()
            restore: Any = status.restore
            if code == 0:
                await self.here.assert_exactly_once(service, rule=book)
                assert restore.proof.equal
        finally:
            await service.stop()
        assert code == (0 if status.phase == "live" else 1)
        assert case.says in told(restore, status.error)
        return ends(restore, self.pointed, status.error.kind if status.error else None)


def _watch(url: str) -> int:
    """In a thread, as a user does in another process."""
    assert threading.current_thread() is not threading.main_thread()
    return CliRunner().invoke(command_line, ["restore-status", "--watch", "--url", url]).exit_code
