"""The demo's app, on rows as they stand in the table."""

import random

from examples.flights import Flight, FlightStats, Stats, app, flight_stats, flights, key_of
from snapreplay.testing import ErrorPolicy, Harness, check, record

ROWS = [
    ("N14228", Flight("UA", "EWR", "IAH", 1400, arr_delay=11, air_time=227)),
    ("N24211", Flight("UA", "LGA", "IAH", 1416, arr_delay=20, air_time=227)),
    ("N14228", Flight("UA", "EWR", "ORD", 719, arr_delay=-4, air_time=101)),
    ("N14228", Flight("UA", "EWR", "BOS", 200)),
]


def rows(count, seed):
    """Random flights of 20 aircraft."""
    chance = random.Random(seed)
    for _ in range(count):
        arrived = chance.random() > 0.1
        yield record(
            flights,
            key=f"N{chance.randrange(20)}",
            value=Flight(
                chance.choice(["UA", "B6"]),
                chance.choice(["EWR", "JFK"]),
                chance.choice(["LAX", "BOS", "MIA"]),
                chance.randrange(100, 3000),
                arr_delay=chance.randrange(-60, 300) if arrived else None,
                air_time=chance.randrange(30, 400) if arrived else None,
            ),
        )


def test_each_flight_gives_one_output_with_its_offset_and_the_running_statistics():
    """The figures are counted by hand; a cancelled flight counts, but has no delay."""
    harness = Harness(app, partition=3)
    harness.feed_batch([record(flights, key=key, value=flight) for key, flight in ROWS])
    found = harness.outputs(flight_stats)
    assert [(one.key, one.value.input_partition, one.value.input_offset) for one in found] == [
        ("N14228", 3, 0),
        ("N24211", 3, 1),
        ("N14228", 3, 2),
        ("N14228", 3, 3),
    ]
    last = Stats(
        flights=3,
        not_arrived=1,
        delayed=1,
        delay_minutes_sum=7,
        delay_minutes_max=11,
        air_minutes=328,
        miles=2319,
        last_carrier="UA",
        last_origin="EWR",
        last_dest="BOS",
    )
    assert found[3].value == FlightStats(3, 3, last)
    assert harness.state["N14228"] == last


def test_flights_without_aircraft_have_a_stable_key():
    """They are spread over the carriers, so that no partition gets them all."""
    assert key_of("N14228", "UA") == "N14228"
    assert key_of(None, "UA") == key_of("", "UA") == "none-UA"


def test_a_broken_row_becomes_a_dead_letter():
    """And the flights around it count."""
    harness = Harness(app, policy=ErrorPolicy.DEAD_LETTER)
    key, flight = ROWS[0]
    broken = record(flights, key=key)
    harness.feed_batch([record(flights, key=key, value=flight), broken, record(flights, key=key, value=flight)])
    assert [str(one.record_id) for one in harness.errors] == ["flights-0-1"]
    assert [one.value.input_offset for one in harness.outputs(flight_stats)] == [0, 2]


def test_state_and_outputs_depend_on_the_records_only():
    """With any batches, crashes and processes."""
    assert check(app, rows(80, seed=13)).left_out == ()
