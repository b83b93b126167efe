"""Tables and joins, against models that search everything."""

from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapreplay import App, MapState, Out, Pair, RecordError, Stores, Topic, UsageError, json, nullable, utf8
from snapreplay.app.batch import ErrorPolicy
from snapreplay.testing import Harness, record

orders, payments = Topic("orders", value=json(int)), Topic("payments", value=json(int))
names = Topic("names", value=nullable(json(str)))
places: Topic[Any, str | None] = Topic("places", key=nullable(utf8), value=nullable(json(str)))
joined = Topic("joined")
late_orders, late_payments = Topic("late-orders", value=json(int)), Topic("late-payments", value=json(int))
How = Literal["inner", "left"]
HOW: list[How] = ["inner", "left"]


class Shop(Stores):
    def __init__(self) -> None:
        self.names = MapState(str, str)
        self.places = MapState(str, str)
        self.orders = MapState(tuple[str, int, int], int, ordered=True)
        self.payments = MapState(tuple[str, int, int], int, ordered=True)


def send(pair: Pair[str, Any, Any], state: Shop, out: Out) -> None:
    out.send(joined, key=pair.key, value=[pair.left, pair.right])


def sent(harness: Harness[Any]) -> list[Any]:
    return [(each.key, *each.value, each.timestamp_ms) for each in harness.outputs(joined)]


def enriching(how: How) -> App[Shop]:
    app = App("enriching", inputs=[orders, names], outputs=[joined], state=Shop)
    table = app.table(names, store="names")
    app.join(orders, table, how="left")(send) if how == "left" else app.join(orders, table)(send)
    return app


def rows(how: How) -> App[Shop]:
    app = App("rows", inputs=[names, places], outputs=[joined], state=Shop)
    left, right = app.table(names, store="names"), app.table(places, store="places")
    app.join(left, right, how=how)(send)
    return app


def matching(how: How, within_ms: int, grace_ms: int) -> App[Shop]:
    app = App("matching", inputs=[orders, payments], outputs=[joined, late_orders, late_payments], state=Shop)
    stores = ("orders", "payments")
    options: dict[str, Any] = {"name": "paid", "within_ms": within_ms, "grace_ms": grace_ms, "stores": stores}
    options["late"] = (late_orders, late_payments)
    app.join(orders, payments, how=how, **options)(send)
    return app


changes = st.lists(
    st.tuples(st.booleans(), st.sampled_from("ab"), st.one_of(st.none(), st.sampled_from("xyz"))), max_size=20
)


def test_a_table_has_the_newest_value_of_each_key():
    """A null value deletes, also a key that is not there; every handler can read it."""
    app = App("table", inputs=[names], state=lambda: MapState(str, str))
    app.table(names)
    harness = Harness(app)
    for key, value in (("a", "x"), ("b", "y"), ("a", None), ("c", None), ("b", "z")):
        harness.feed(names, key=key, value=value)
    harness.crash()
    assert dict(harness.state) == {"b": "z"}
    assert harness.view()["b"] == "z"


def test_a_null_key_of_a_table_is_a_record_that_cannot_be_processed():
    """By the policy, as any other."""
    harness = Harness(rows("inner"), policy=ErrorPolicy.DEAD_LETTER)
    harness.feed(places, key=None, value="x")
    harness.feed(places, key="a", value="x")
    assert dict(harness.state.places) == {"a": "x"}
    assert [str(each.record_id) for each in harness.errors] == ["places-0-0"]
    assert "a record of a table needs a key" in str(harness.errors[0])
    with pytest.raises(RecordError, match="key cannot be read as utf8"):
        Harness(enriching("left")).feed_raw(names, None, b'"x"')


@pytest.mark.parametrize("how", HOW)
@settings(max_examples=50)
@given(changes)
def test_a_record_meets_the_value_that_its_table_has(how, given):
    harness = Harness(enriching(how))
    table: dict[str, str] = {}
    expected = []
    for number, (is_order, key, name) in enumerate(given, 1):
        if is_order:
            harness.feed(orders, key=key, value=number)
            if how == "left" or key in table:
                expected.append((key, number, table.get(key), number))
        else:
            harness.feed(names, key=key, value=name)
            table.pop(key, None) if name is None else table.update({key: name})
    harness.crash()
    assert sent(harness) == expected


@pytest.mark.parametrize("how", HOW)
@settings(max_examples=50)
@given(changes)
def test_each_change_of_a_joined_row_is_reported(how, given):
    """Also that it is gone: then a side is None. What changes nothing is not."""
    harness = Harness(rows(how))
    tables: tuple[dict[str, str], dict[str, str]] = ({}, {})
    expected = []
    for at_ms, (is_left, key, value) in enumerate(given, 1):
        topic: Topic[Any, str | None] = names if is_left else places
        harness.feed(topic, key=key, value=value)
        table, other = tables if is_left else tables[::-1]
        was_there = key in table
        table.pop(key, None) if value is None else table.update({key: value})
        changed = was_there or value is not None
        if changed and (key in other or (how == "left" and is_left)):
            expected.append((key, tables[0].get(key), tables[1].get(key), at_ms))
    harness.crash()
    assert sent(harness) == expected


streams = st.lists(st.tuples(st.booleans(), st.sampled_from("ab"), st.integers(0, 40)), max_size=25)


@pytest.mark.parametrize("how", HOW)
@settings(max_examples=50)
@given(streams, st.integers(0, 12), st.integers(0, 12), st.integers(1, 9))
def test_all_records_that_lie_within_the_time_meet_once(how, given, within_ms, grace_ms, batches):
    """But for late records: further behind stream time than the grace. A left record without a match is emitted when
    none can come any more. Nothing is left in the stores."""
    now_ms, kept = -1, []
    late: list[list[tuple[str, int, int]]] = [[], []]
    for number, (is_left, key, at_ms) in enumerate(given):
        now_ms = max(now_ms, at_ms)
        if at_ms + grace_ms < now_ms:
            late[0 if is_left else 1].append((key, number, at_ms))
        else:
            kept.append((is_left, key, at_ms, number))
    expected: list[Any] = []
    for _, key, at_ms, number in (each for each in kept if each[0]):
        there = [(n, at) for is_left, k, at, n in kept if not is_left and k == key and abs(at - at_ms) <= within_ms]
        expected += [(key, number, other, max(at_ms, at)) for other, at in there]
        if how == "left" and not there:
            expected.append((key, number, None, at_ms))
    harness = Harness(matching(how, within_ms, grace_ms))
    records = [
        record(orders if is_left else payments, key=key, value=number, timestamp_ms=at_ms)
        for number, (is_left, key, at_ms) in enumerate(given)
    ]
    for start in range(0, len(records), batches):
        harness.feed_batch(records[start : start + batches])
    harness.crash()
    harness.advance_time(1000)
    harness.crash()
    assert sorted(sent(harness), key=repr) == sorted(expected, key=repr)
    assert harness.late.total() == len(late[0]) + len(late[1])
    for topic, expected_late in zip((late_orders, late_payments), late, strict=True):
        assert [(each.key, each.value, each.timestamp_ms) for each in harness.outputs(topic)] == expected_late
    assert not harness.state.orders
    assert not harness.state.payments


def test_what_could_not_be_sent_alone_is_left_in_no_store():
    """Its timer is a dead letter, and no other one would take it away."""
    app = App("failing", inputs=[orders, payments], outputs=[joined], state=Shop)

    @app.join(orders, payments, how="left", name="j", within_ms=1, grace_ms=0, stores=("orders", "payments"))
    def fail(pair: Pair[str, Any, Any], state: Shop, out: Out) -> None:
        raise ValueError

    harness = Harness(app, policy=ErrorPolicy.DEAD_LETTER)
    harness.feed(orders, key="a", value=1, timestamp_ms=5)
    harness.advance_time(100)
    harness.crash()
    assert (dict(harness.state.orders), len(harness.dead_letters)) == ({}, 1)


def refusing(declare: Any) -> None:
    app = App("refusing", inputs=[orders, payments, names, any_pay], outputs=[joined], state=Shop)
    declare(app)
    for topic in app.inputs:
        if topic not in app.handlers:
            app.handler(topic)(lambda record, state, out: None)
    app.validate()


any_pay = Topic.matching("any-pay-.*", value=json(int))
OPTIONS: dict[str, Any] = {"name": "j", "within_ms": 1, "grace_ms": 0, "stores": ("orders", "payments")}


@pytest.mark.parametrize(
    ("declare", "why"),
    [
        (lambda app: app.table(orders, store="orders"), "a null value deletes a key, but json.* takes none"),
        (lambda app: app.table(places), "is not one of the app's inputs"),
        (lambda app: app.table(names), "table names: the state has no store 'default'"),
        (lambda app: (app.table(names, store="names"), app.table(names, store="names")), "has two handlers"),
        (lambda app: app.join(orders, payments)(send), "cannot join Topic.*with name=, within_ms="),
        (lambda app: app.join(app.table(names, store="names"), orders)(send), "cannot join table names with"),
        (
            lambda app: app.join(orders, app.table(names, store="names"), within_ms=5, grace_ms=1),
            "within_ms, grace_ms: only a join of two topics takes them, and table names",
        ),
        *(
            (
                lambda app, late=late: app.join(orders, payments, **OPTIONS | {"late": late}),
                "of join j is not an output",
            )
            for late in (places, (places,), (None, None, None))
        ),
        (lambda app: app.join(orders, payments, **OPTIONS, how="outer")(send), "neither"),
        (lambda app: app.join(orders, any_pay, **OPTIONS)(send), "join j: .*any-pay.* may match several topics"),
        (lambda app: app.join(any_pay, orders, **OPTIONS)(send), "join j: .*any-pay.* may match several topics"),
        (lambda app: app.join(orders, payments, **OPTIONS | {"within_ms": -1})(send), "within_ms=-1 is not"),
        (
            lambda app: app.join(orders, payments, **OPTIONS | {"late": (None, places)})(send),
            "late=.* of join j is not one",
        ),
        (lambda app: app.join(orders, payments, **OPTIONS | {"stores": ("orders", "orders")})(send), "not two names"),
        (lambda app: app.join(orders, payments, **OPTIONS | {"stores": ("orders", "names")})(send), "keys of store"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_record(declare, why):
    with pytest.raises(UsageError, match=why):
        refusing(declare)
