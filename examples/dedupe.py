"""Passes each event on once: a second one with the same id within an hour is dropped.

Time is that of the records (`stream_time_ms`), never the clock, because a replay must decide the same.
"""

from __future__ import annotations

from snapreplay import App, MapState, Out, Record, Topic, raw, utf8

HOUR_MS = 3_600_000
SWEPT = "swept"
"""State key of the hour that was last cleaned up; the keys of event ids begin with "id/"."""

events = Topic("events", key=utf8, value=raw)
unique_events = Topic("unique-events", key=utf8, value=raw)

app = App(
    "dedupe",
    inputs=[events],
    outputs=[unique_events],
    state=lambda: MapState(str, int),
)


@app.handler(events)
def on_event(record: Record[str, bytes], state: MapState[str, int], out: Out) -> None:
    now_ms = state.stream_time_ms
    forget_old(state, now_ms)
    entry = f"id/{record.key}"
    seen_ms = state.get(entry)
    if seen_ms is None or now_ms - seen_ms > HOUR_MS:
        state[entry] = now_ms
        out.send(unique_events, key=record.key, value=record.value)


def forget_old(state: MapState[str, int], now_ms: int) -> None:
    """Once per hour: walking through the state costs more than one lookup."""
    hour = now_ms // HOUR_MS
    if state.get(SWEPT) == hour:
        return
    state[SWEPT] = hour
    for entry in list(state):
        if entry != SWEPT and now_ms - state[entry] > HOUR_MS:
            del state[entry]
