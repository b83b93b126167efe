"""The order in which records of several inputs are applied."""

from hypothesis import given
from hypothesis import strategies as st

from snapreplay.app.interleave import by_input, interleave
from snapreplay.app.record import RawRecord


def of(topic, timestamps):
    return [RawRecord(topic, 0, offset, at, None, None) for offset, at in enumerate(timestamps)]


timestamps = st.lists(st.integers(0, 6), max_size=6)


def test_one_input_is_not_copied():
    """The common case costs nothing."""
    records = of("a", [3, 1, 2])
    assert interleave([records]) is records
    assert interleave([[], records, []]) is records
    assert list(interleave([])) == []


def test_oldest_head_first_and_ties_to_the_first_input():
    """An input whose times fall back holds its own later records back, not the other input's."""
    merged = interleave([of("a", [1, 5, 2]), of("b", [1, 4, 6])])
    assert [(r.topic, r.timestamp) for r in merged] == [
        ("a", 1),
        ("b", 1),
        ("b", 4),
        ("a", 5),
        ("a", 2),
        ("b", 6),
    ]


@given(st.lists(timestamps, max_size=4))
def test_nothing_is_lost_and_each_input_keeps_its_order(inputs):
    """Whatever the timestamps, each input's records come once and in offset order, by the rule of
    the heads.
    """
    slices = [of(f"t{number}", times) for number, times in enumerate(inputs)]
    merged = list(interleave(slices))
    for records in slices:
        assert [r for r in merged if records and r.topic == records[0].topic] == records
    heads = [list(records) for records in slices if records]
    for record in merged:
        first = min(heads, key=lambda head: head[0].timestamp)
        assert first.pop(0) is record
        heads = [head for head in heads if head]


def test_what_was_fetched_in_pieces_is_one_run_per_input():
    """The pieces of one input in the order in which they came."""
    pieces = [of("a", [1]), of("b", [2]), of("a", [3])]
    assert [[record.timestamp for record in run] for run in by_input(pieces)] == [[1, 3], [2]]
