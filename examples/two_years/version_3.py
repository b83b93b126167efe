"""Version 3: without AirTran, which is now a part of Southwest. Every partition is upgraded: the upgrade is gone."""

from __future__ import annotations

import msgspec

from snapreplay import App, MapState, Out, Record, Topic, json, utf8


class Flight(msgspec.Struct):
    carrier: str
    air_time: int | None = None  # minutes; None: cancelled or diverted


class Destination(msgspec.Struct):
    flights: int = 0
    minutes: int = 0


flights = Topic.matching("flights-(?!FL)..", key=utf8, value=json(Flight))
destinations = Topic("destinations", key=utf8, value=json(Destination))

app = App(
    "two-years",
    inputs=[flights],
    outputs=[destinations],
    state=lambda: MapState(str, Destination, default=Destination),
    schema_version=2,
)


@app.handler(flights)
def on_flight(record: Record[str, Flight], state: MapState[str, Destination], out: Out) -> None:
    there = state[record.key]
    there.flights += 1
    there.minutes += record.value.air_time or 0
    out.send(destinations, key=record.key, value=there)
