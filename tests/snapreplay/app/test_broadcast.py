"""Broadcast tables without a broker, against a naive model: every partition has all rows."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapreplay import App, MapState, RecordError, Stores, Topic, UsageError, json, nullable, utf8
from snapreplay.app.batch import ErrorPolicy
from snapreplay.app.names import place_of_input
from snapreplay.testing import Harness, Pipeline, check, record
from snapreplay.testing.upgrades import check_upgrade
from tests.support import apps

events = st.lists(
    st.tuples(
        st.sampled_from(("row", "pay", "crash", "snapshot")), st.integers(0, 9), st.one_of(st.none(), st.integers(1, 9))
    ),
    max_size=25,
)
PARTITIONS = 3


@settings(max_examples=60)
@given(events, st.integers(0, 2))
def test_each_partition_has_the_rows_of_all_partitions(given, at):
    """Fed in any order, with crashes in between, each payment is worth what its currency's last row says."""
    app = apps.converted("app")
    payments, rates = apps.topics_of(app)
    pipeline, known, sums = Pipeline(app, partitions=PARTITIONS), dict[str, int](), dict[str, int]()
    for number, (what, key, value) in enumerate(given):
        match what:
            case "row":
                pipeline.feed(rates, key=f"currency-{key % 5}", value=value)
                known.pop(f"currency-{key % 5}", None)
                known.update({} if value is None else {f"currency-{key % 5}": value})
            case "pay":
                pipeline.feed(payments, key=f"k{key}", value={"amount": number})
                worth = number * known.get(apps.currency_of({"amount": number}), 0)
                sums[f"k{key}"] = sums.get(f"k{key}", 0) + worth
            case "snapshot":
                pipeline.snapshot()
            case _:
                pipeline.crash(seed=number)
    states: list[Any] = [pipeline.harness(app, number).state for number in range(PARTITIONS)]
    assert [dict(state.rates) for state in states] == [known] * PARTITIONS
    assert {key: each["sum"] for state in states for key, each in state.accounts.items()} == sums
    if given:  # what one partition has applied, it replays from any of its inputs
        pipeline.harness(app, at).crash()


def test_a_harness_feeds_the_first_partition_of_the_table():
    """A record is that of an input, its id that of its place in Kafka. `check` replays and counts it as any other."""
    app = apps.converted("app")
    payments, rates = apps.topics_of(app)
    harness = Harness(app, policy=ErrorPolicy.DEAD_LETTER)
    (first, second) = harness.feed_batch([record(rates, key="currency-0", value=n) for n in (1, 2)])
    assert [(each.topic, each.offset) for each in (first, second)] == [("rates-app/0", 0), ("rates-app/0", 1)]
    harness.feed_batch([second])  # as it was numbered before
    harness.feed_raw(rates, None, b"3")
    assert [str(each.record_id) for each in harness.errors] == ["rates-app-0-3"]
    report = check(app, [record(rates, key="currency-0", value=1), record(payments, key="k", value={"amount": 5})])
    assert not [line for line in report.left_out if "never ran" in line]


def test_a_place_in_kafka_is_recognised_by_its_name():
    assert place_of_input("rates/12", 1) == ("rates", 12)
    assert place_of_input("rates", 1) == ("rates", 1)


def test_an_app_that_has_the_table_from_now_on_takes_over():
    """Its rows come from the table's beginning; what was partitioned before is another input."""
    before, after = (App("app", inputs=[here, there], state=lambda: MapState(str, int)) for _ in range(2))
    for each in (before, after):
        each.handler(here)(lambda record, state, out: None)
    before.table(there)
    after.table(there, broadcast=True)
    report = check_upgrade(before, after, [record(there, key="a", value=1), record(here, key="a")])
    assert report.other_inputs == (
        "input there is retired: run `snapreplay inputs` with the new version before it starts",
    )


here, other = Topic("here", value=nullable(json(int))), Topic("other", value=nullable(json(int)))
there = Topic("there", value=nullable(json(int)))
hashed = Topic("hashed", value=nullable(json(int)), partitioner="crc32")
pattern = Topic.matching("p-.*", value=nullable(json(int)))


def broadcast(app: Any, topic: Any) -> Any:
    return app.table(topic, store="a", broadcast=True)


def refusing(declare: Any) -> None:
    inputs = [here, other, there, hashed, pattern]
    app = App("refusing", inputs=inputs, state=lambda: Stores(a=MapState(str, int), b=MapState(str, int)))
    declare(app)
    for topic in app.inputs:
        if topic not in app.handlers:
            app.handler(topic)(lambda record, state, out: None)
    app.validate()


@pytest.mark.parametrize(
    ("declare", "why"),
    [
        (lambda app: broadcast(app, hashed), "table hashed: only a topic of its own"),
        (lambda app: broadcast(app, pattern), "table p-.*: only a topic of its own"),
        (lambda app: broadcast(app, app.topic("t", value=here.value)), "table refusing-internal-t: only a topic"),
        (lambda app: (broadcast(app, here), app.handler(here)(print)), "table, whose records have no other handler"),
        (lambda app: (app.handler(here)(print), broadcast(app, here)), "has two handlers"),
        (lambda app: app.join(broadcast(app, here), app.table(there, store="b"))(print), "its changes reach every"),
        (lambda app: app.join(app.table(here, store="b"), broadcast(app, there))(print), "its changes reach every"),
        (lambda app: (broadcast(app, here), app.table(there, store="a")), "here and table there share the store 'a'"),
        (lambda app: [broadcast(app, each) for each in (here, other, there, hashed)], "table hashed: only"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_record(declare, why):
    with pytest.raises(UsageError, match=why):
        refusing(declare)


@pytest.mark.parametrize("has_internal", [False, True])
def test_an_app_of_nothing_else_has_no_number_of_partitions(has_internal):
    """Its own topics get theirs."""
    app = App("all", inputs=[here], state=lambda: MapState(str, int))
    app.table(here, broadcast=True)
    if has_internal:
        app.handler(app.topic("own"))(lambda record, state, out: None)
    with pytest.raises(UsageError, match="all inputs are broadcast tables, and none says how many partitions"):
        app.validate()


def test_a_topic_is_joined_with_it_by_the_key_of_the_record():
    """The table is partitioned in any way, so nothing needs to be moved first."""
    out_to = Topic("out", key=utf8)
    app = App("joined", inputs=[other, here], outputs=[out_to], state=lambda: MapState(str, int))
    app.join(other, app.table(here, broadcast=True))(
        lambda pair, state, out: out.send(out_to, key=pair.key, value=[pair.left, pair.right])
    )
    pipeline = Pipeline(app, partitions=3)
    for number, key in enumerate("abcdef"):
        pipeline.feed(here, key=key, value=number, partition=number % 2)
        pipeline.feed(other, key=key, value=10, partition=2)
    assert [each.value for each in pipeline.outputs(out_to)] == [[10, number] for number in range(6)]
    with pytest.raises(RecordError, match="here-1-3: key cannot be read"):
        pipeline.feed_raw(here, None, b"1", partition=1)
