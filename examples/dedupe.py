"""Passes each event on once: another event with the same id within an hour is dropped.

An id expires an hour after it was first seen, by the time of the records, never by the clock. So the state
has the ids of one hour, and a replay has the same result.
"""

from __future__ import annotations

from snapreplay import App, MapState, Out, Record, Topic, raw, utf8

HOUR_MS = 3_600_000

events = Topic("events", key=utf8, value=raw)
unique_events = Topic("unique-events", key=utf8, value=raw)

app = App("dedupe", inputs=[events], outputs=[unique_events], state=lambda: MapState(str, bool, ttl_ms=HOUR_MS))


@app.handler(events)
def on_event(record: Record[str, bytes], state: MapState[str, bool], out: Out) -> None:
    if record.key not in state:  # `in` touches nothing: a duplicate does not extend the hour
        state[record.key] = True
        out.send(unique_events, key=record.key, value=record.value)
