"""Two versions whose types differ: each has written a partition that was empty. What a hint says leads on, on both."""

import msgspec
import pytest

from snapreplay import App, MapState, Topic
from snapreplay.errors import StopError
from snapreplay.testing import Harness

PAYMENTS = Topic("payments")


class First(msgspec.Struct):
    n: int = 0


class Required(msgspec.Struct):
    n: int
    limit: int


class WithDefault(msgspec.Struct):
    n: int = 0
    limit: int = 7


class Renamed(msgspec.Struct):
    m: int = 0


class Both(msgspec.Struct):
    n: int = 0
    m: int = 0


class Changed(msgspec.Struct):
    n: str = ""


class Either(msgspec.Struct):
    n: int | str = 0


def version(values, made):
    """Stores what it makes under each key."""
    app = App("typed", inputs=[PAYMENTS], state=lambda: MapState(str, values))

    @app.handler(PAYMENTS)
    def on_payment(record, state, out):
        state[record.key] = made

    return app


TOO = "declare the field too, with a default"
READS = "declare a type that reads what is stored: a default for a new field, `int | str` for a changed type"


@pytest.mark.parametrize(
    ("second", "last", "said_to_second", "said_to_first"),
    [(Required(1, 2), WithDefault, READS, TOO), (Renamed(1), Both, TOO, TOO), (Changed("x"), Either, READS, READS)],
)
def test_partitions_of_both_versions_go_on_with_what_each_hint_says(second, last, said_to_second, said_to_first):
    """Each is told so, whichever version finds the values of the other; then all values are read, and none is lost."""
    one, two = version(First, First(3)), version(type(second), second)
    full, empty = Harness(one, 0), Harness(one, 1)
    full.feed(PAYMENTS, key="ada", value=1)
    filled = empty.handed_over(two)
    filled.feed(PAYMENTS, key="bob", value=1)
    for partition, other, said in ((full, two, said_to_second), (filled, one, said_to_first)):
        with pytest.raises(StopError) as refused:
            partition.handed_over(other)
        assert said in refused.value.hint
    end = version(last, last())
    for partition in (full, filled):
        heir = partition.handed_over(end)
        (before,), (after,) = partition.state.values(), heir.state.values()
        stored = msgspec.to_builtins(before)
        assert stored.items() <= msgspec.to_builtins(after).items()
        heir.feed(PAYMENTS, key="eve", value=1)
        heir.handed_over(end)


def test_a_changed_type_is_upgraded_as_the_hint_says():
    """From the type that was stored to the one that did not read it."""
    old = Harness(version(First, First(3)))
    old.feed(PAYMENTS, key="ada", value=1)
    with pytest.raises(StopError) as refused:
        old.handed_over(version(Changed, Changed("x")))
    assert "raise `schema_version`" in refused.value.hint
    assert "`@app.upgrade(from_schema=…, value=TYPE_THAT_WAS_STORED)`" in refused.value.hint
    new = version(Changed, Changed("x"))
    new.schema_version = 2
    new.upgrade(from_schema=1, value=First)(lambda key, old: (key, Changed(str(old.n))))
    assert dict(old.handed_over(new).state) == {"ada": Changed("3")}
