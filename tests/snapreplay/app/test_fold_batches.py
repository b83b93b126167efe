"""The fold over random records: a batch's effect is that of its records as batches of one."""

from hypothesis import given, settings
from hypothesis import strategies as st

from snapreplay.app.batch import ErrorPolicy
from tests.support.fold_bench import Bench, offsets, raw

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["payments", "payments", "rates"]),
        st.sampled_from([b"ada", b"bob", b"cyd", b"\xff", None]),
        st.sampled_from(
            [
                "ok",
                "ok",
                "ok",
                "null",
                "bad",
                "raise",
                "undeclared",
                "oversize",
                "unwritable",
                "wide",
                "alias",
                "delete",
                "answer",
            ]
        ),
        st.integers(0, 50),
    ),
    max_size=25,
)


def built(steps):
    offset, records = {"payments": 0, "rates": 0}, []
    for topic, key, what, at in steps:
        value = {"null": None, "bad": b"{"}.get(what, {"do": what} if topic == "payments" else at)
        records.append(raw(topic, offset[topic], value, key=key, at=at))
        offset[topic] += 1
    return records


@given(STEPS, st.lists(st.integers(1, 9), max_size=12))
@settings(max_examples=100)
def test_effect_does_not_depend_on_batches(steps, sizes):
    """Any failing records, any cut into batches: state, outputs, dead letters, skips and positions
    agree."""
    records = built(steps)
    single, batched = Bench(), Bench()
    for record in records:
        single.batch([record])
    start = 0
    for size in [*sizes, len(records)]:
        batched.batch(records[start : start + size])
        start += size
    assert batched.effect() == single.effect()
    applied = offsets(r for a in batched.applied for r in a.ranges) - batched.effect()["skipped"]
    assert len(applied) == batched.effect()["count"]


@given(STEPS)
@settings(max_examples=100)
def test_policy_fail_applies_exactly_the_good_prefix(steps):
    """The first failing record and those behind it leave nothing, and are not covered."""
    records = built(steps)
    reference, bench = Bench(ErrorPolicy.FAIL), Bench(ErrorPolicy.FAIL)
    good = 0
    for record in records:
        if reference.batch([record]).failure:
            break
        good += 1
    applied = bench.batch(records)
    assert bench.effect() == {**reference.effect(), "positions": applied.positions}
    assert (applied.failure is None) == (good == len(records))
    assert sum(one.record_count for one in applied.ranges) == good
    if applied.failure is not None:
        failing = records[good]
        assert str(applied.failure.record_id) == f"{failing.topic}-0-{failing.offset}"
        assert applied.positions[failing.topic] == failing.offset
