"""The app of `examples/flights.py` under other names, for a cluster where "flights" may be somebody's topic."""

from __future__ import annotations

import os

from examples import flights
from examples.demo.names import PREFIX_VARIABLE, Names
from examples.flights import Flight, FlightStats, Stats
from snapreplay import App, MapState, Out, Record, Topic, json, utf8

_names = Names(os.environ.get(PREFIX_VARIABLE, ""))
flights_in = Topic(_names.input_topic, key=utf8, value=json(Flight))
stats_out = Topic(_names.output_topic, key=utf8, value=json(FlightStats))
app = App(_names.app_id, inputs=[flights_in], outputs=[stats_out], state=flights.app.state)


@app.handler(flights_in)
def on_flight(record: Record[str, Flight], state: MapState[str, Stats], out: Out) -> None:
    stats = state[record.key]
    flights.count(stats, record.value)
    after = FlightStats(record.partition, record.offset, stats)
    out.send(stats_out, key=record.key, value=after)
