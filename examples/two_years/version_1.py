"""Version 1: how many flights AirTran had to each destination, and how many hours they were in the air.

Input "flights-FL": the flights of AirTran, keyed by their destination. Output "destinations": the statistics of a
destination after each flight.
"""

from __future__ import annotations

import msgspec

from snapreplay import App, MapState, Out, Record, Topic, json, utf8


class Flight(msgspec.Struct):
    carrier: str
    air_time: int | None = None  # minutes; None: cancelled or diverted


class Destination(msgspec.Struct):
    flights: int = 0
    hours: float = 0.0


airtran = Topic("flights-FL", key=utf8, value=json(Flight))
destinations = Topic("destinations", key=utf8, value=json(Destination))

app = App(
    "two-years", inputs=[airtran], outputs=[destinations], state=lambda: MapState(str, Destination, default=Destination)
)


@app.handler(airtran)
def on_flight(record: Record[str, Flight], state: MapState[str, Destination], out: Out) -> None:
    there = state[record.key]
    there.flights += 1
    there.hours += (record.value.air_time or 0) / 60
    out.send(destinations, key=record.key, value=there)
