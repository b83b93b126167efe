"""The consumer of plain_consumer.py as an app, with the same arguments but the way."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from snapreplay import App, MapState, Out, Record, Service, Settings, Topic, nullable, raw, running
from snapreplay.service.config.groups import BatchSettings, GroupSettings

RECORDS, BATCH, DIES_AT = 150, 50, 80
bootstrap_servers, name, *dies = sys.argv[1:]

records = Topic(name, key=nullable(raw), value=raw)
outputs = Topic(f"{name}-out", key=nullable(raw))
app = App(name, inputs=[records], outputs=[outputs], state=lambda: MapState(str, int, default=int))


@app.handler(records)
def on_record(record: Record[bytes | None, bytes], state: MapState[str, int], out: Out) -> None:
    if dies and record.offset == DIES_AT:
        os._exit(137)
    state["balance"] += 1
    out.send(outputs, key=None, value={"offset": record.offset, "balance": state["balance"]})


def done(service: Service[Any]) -> bool:
    """Say whether the last record's batch is committed."""
    return any(i.position == RECORDS for s in service.restore_status() for i in s.inputs)


async def main() -> None:
    kafka: dict[str, Any] = {"bootstrap.servers": bootstrap_servers}
    group = GroupSettings(session_timeout_ms=3000, heartbeat_interval_ms=300)  # the next one waits for the end of it
    settings = Settings(kafka=kafka, batch=BatchSettings(records_max=BATCH), group=group)
    async with running(app, settings) as service, asyncio.timeout(120):
        while not done(service):  # noqa: ASYNC110 - a status has no event
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(main())
