"""The program of `benchmarks.memory` with large values: each has the text of the last record of its key."""

from __future__ import annotations

import msgspec

from snapreplay.app.app import App
from snapreplay.app.codecs import json, utf8
from snapreplay.app.out import Out
from snapreplay.app.record import Record
from snapreplay.app.topic import Topic
from snapreplay.state.map import MapState


class Note(msgspec.Struct):
    amount: int = 0
    ts: int = 0
    pad: str = ""


class Total(msgspec.Struct):
    amount: int


notes = Topic("bench-in", key=utf8, value=json(Note))
totals = Topic("bench-out", key=utf8, value=json(Total))
app = App("bench", inputs=[notes], outputs=[totals], state=lambda: MapState(str, Note, default=Note))


@app.handler(notes)
def on_note(record: Record[str, Note], state: MapState[str, Note], out: Out) -> None:
    stored, note = state[record.key], record.value
    stored.amount += note.amount
    stored.ts, stored.pad = note.ts, note.pad
    out.send(totals, key=record.key, value=Total(stored.amount))
