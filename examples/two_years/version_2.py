"""Version 2: whole minutes instead of hours, whose fractions do not add up; and every carrier whose topic appears."""

from __future__ import annotations

import msgspec

from snapreplay import App, MapState, Out, Record, Topic, json, utf8


class Flight(msgspec.Struct):
    carrier: str
    air_time: int | None = None  # minutes; None: cancelled or diverted


class DestinationV1(msgspec.Struct):
    flights: int = 0
    hours: float = 0.0


class Destination(msgspec.Struct):
    flights: int = 0
    minutes: int = 0


flights = Topic.matching("flights-..", key=utf8, value=json(Flight))
destinations = Topic("destinations", key=utf8, value=json(Destination))

app = App(
    "two-years",
    inputs=[flights],
    outputs=[destinations],
    state=lambda: MapState(str, Destination, default=Destination),
    schema_version=2,
)


@app.upgrade(from_schema=1, value=DestinationV1)
def in_minutes(key: str, old: DestinationV1) -> tuple[str, Destination]:
    return key, Destination(old.flights, round(old.hours * 60))


@app.handler(flights)
def on_flight(record: Record[str, Flight], state: MapState[str, Destination], out: Out) -> None:
    there = state[record.key]
    there.flights += 1
    there.minutes += record.value.air_time or 0
    out.send(destinations, key=record.key, value=there)
