"""Tests of what decides the meaning of stored values: what is recorded of it, and what is refused when it changes."""

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest
from msgspec import inspect

from snapreplay.state.fields import Layout, StoreFields, store_fields
from snapreplay.state.recorded import MeaningChanged, Recorded


def of(type_: Any, dropped: tuple[str, ...] = ()) -> dict[str, StoreFields]:
    return {"default": store_fields(inspect.type_info(type_), dropped)}


def following(*versions: dict[str, StoreFields]) -> Iterator[tuple[str, str] | None]:
    """Let each version take over from the one before, and say what it is refused for: class and message."""
    recorded = Recorded({}, {}).after(versions[0])
    for declared in versions[1:]:
        refused = recorded.of_entries({"default": 1}).refuse(declared, "code:1")
        yield None if refused is None else (type(refused).__name__, refused.message)
        recorded = recorded.of_entries({"default": 1}).after(declared)


def struct(*fields: Any, name: str = "It", **options: Any) -> Any:
    return msgspec.defstruct(name, fields, **options)


def rows(*names: Any) -> Any:
    return struct(*((each, int) if isinstance(each, str) else each for each in names), array_like=True)


def omitting(*fields: Any) -> Any:
    return struct(*fields, omit_defaults=True)


def enum_of(**members: Any) -> Any:
    return enum.Enum("Colour", members)


class Place(NamedTuple):
    x: int
    y: int


class Turned(NamedTuple):
    y: int
    x: int


class Longer(NamedTuple):
    x: int
    y: int
    z: int = 0


class Optional(TypedDict, total=False):
    n: int


@dataclass
class Given:
    n: int | msgspec.UnsetType = msgspec.UNSET


LIMIT, ONE, FIVE = ("limit", int, 100), ("n", int, 1), ("n", int, 5)
KEPT_NAME = ("b", int, msgspec.field(name="a"))
IN, OUT = struct(("amount", int), name="In", tag=1), struct(("amount", int), name="Out", tag=2)
IN_2, OUT_1 = struct(("amount", int), name="In", tag=2), struct(("amount", int), name="Out", tag=1)
DEPOSIT = struct(("amount", int), name="Deposit", tag=1)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (omitting(LIMIT), omitting(("limit", int, 200)), "may lack 'limit', which meant 100"),
        (omitting(LIMIT), omitting(("limit", float, 100.0)), None),
        (omitting(LIMIT), struct(LIMIT), None),
        (omitting(LIMIT), struct(("limit", int, 200)), "takes 200 for it"),
        (omitting(LIMIT), struct(("limit", int)), "requires the field"),
        (struct(LIMIT), struct(("limit", int, 200)), None),
        (omitting(("a", list, [])), struct(("a", list, msgspec.field(default_factory=lambda: [9]))), "meant []"),
        (struct(("home", omitting(LIMIT))), struct(("home", omitting(("limit", int, 2)))), "'home.limit'"),
        (list[omitting(LIMIT)], list[omitting(("limit", int, 2))], "'[].limit'"),  # type: ignore[misc]  # made here
        (struct(("n", int | msgspec.UnsetType, msgspec.UNSET)), struct(FIVE), "meant no value"),
        (Given, struct(FIVE), "meant no value"),
        (Optional, struct(FIVE), "meant no value"),
        (omitting(ONE), Optional, "takes no value"),
        (rows("a", "b"), rows("b", "a"), "the place '0=' has the field 'a'"),
        (rows("a", "b"), rows("c", "a", ("b", int, 0)), "would read it as 'c'"),
        (rows("a", "b"), rows("a", "b", ("c", int, 0)), None),
        (rows("a", "c"), rows(KEPT_NAME, "c"), None),
        (rows("a", "c"), rows("b", "c"), "would read it as 'b'"),
        (Place, Turned, "the place '0=' has the field 'x'"),
        (Place, Longer, None),
        (Place, rows("x", "y"), None),
        (dict[str, Place], dict[str, Turned], "'{}.0='"),
        (enum_of(A=1, B=2), enum_of(B=1, A=2), "the stored 1 in values in state is the member A"),
        (enum_of(A=1, B=2), enum_of(A=1, B=2, C=3), None),
        (enum_of(A=1, B=2), enum_of(C=1, B=2), "would read it as C"),
        (enum_of(A=1, B=2), enum_of(C=1, A=1, B=2), None),
        (enum_of(A="a", B="b"), enum_of(B="a", A="b"), "the stored a"),
        (enum_of(A=1, B=2), enum_of(B=2), None),  # an entry with 1 is unreadable, and says so itself
        (struct(("c", list[enum_of(A=1)])), struct(("c", list[enum_of(B=1)])), "'c[]' of values"),  # type: ignore[misc]
        (IN | OUT, IN_2 | OUT_1, "tag '<1>' in values in state are of the class In"),
        (IN | OUT, DEPOSIT | OUT, None),
        (list[int], set[int], "repeated items"),
        (struct(("a", list[int])), struct(("a", frozenset[int])), "'a' of values in state"),
        (set[int], list[int], None),
        (set[int], frozenset[int], None),
        (struct(), struct(("a", set[int], set())), None),
        (int, str, None),  # unreadable, and says so itself
    ],
)
def test_another_meaning_of_the_same_bytes_is_refused(old: Any, new: Any, said: str | None) -> None:
    """By what would be misread; a change that keeps the meaning passes."""
    (refused,) = following(of(old), of(new))
    assert (refused and refused[0]) == (said and MeaningChanged.__name__)
    if refused and said:
        assert said in refused[1]


OF_1, OF_5 = struct(ONE, frozen=True), struct(FIVE, frozen=True)
GONE, MORE = of(struct("a")), of(struct("a", ONE))


@pytest.mark.parametrize(
    ("versions", "last"),
    [
        ((GONE, MORE, of(struct("a", ONE))), None),
        ((GONE, MORE, of(struct("a", FIVE))), "may lack 'n', which meant 1"),
        ((GONE, MORE, of(struct("a", FIVE), ("n",))), None),
        ((MORE, of(struct("a", FIVE))), None),
        ((GONE, of(struct("a", ("b", OF_1, OF_1()))), of(struct("a", ("b", OF_5, OF_5())))), "may lack 'b'"),
        ((of(IN), of(IN | struct(ONE, tag=3)), of(IN | struct(FIVE, tag=3))), None),
        ((of(omitting(LIMIT)), of(struct(LIMIT)), of(struct(("limit", int, 2)))), "which meant 100"),
        ((of(rows("a", "b")), of(rows("a"), ("1=",)), of(rows("a", ("c", int, 0)), ("1=",))), "has the field 'b'"),
        ((of(enum_of(A=1, B=2)), of(enum_of(A=1)), of(enum_of(A=1, C=2))), "is the member B"),
        ((of(rows("a")), of(rows("a", ("b", int, 1))), of(rows("a", ("b", int, 2)))), "may lack '1='"),
    ],
)
def test_values_of_all_earlier_versions_count(versions: tuple[Any, ...], last: str | None) -> None:
    """Not only what the version before has written: an entry may not have been touched since."""
    *before, refused = following(*versions)
    assert before == [None] * len(before)
    assert (refused is None) == (last is None)
    if refused and last:
        assert last in refused[1]


def test_without_entries_nothing_can_be_misread() -> None:
    """So nothing is refused where nothing is stored."""
    recorded = Recorded({}, {}).after(of(Place))
    assert recorded.of_entries({"default": 0}).refuse(of(Turned), "code:1") is None


def test_a_value_inside_itself_is_compared_where_it_is_met() -> None:
    """In the place where the type is followed, also by a version that follows it elsewhere."""
    inner = Recorded({"default": ["child", "child.child", "child.place", "child.place.0="]}, {})
    layouts = {"default": Layout(places={"child.place.0=": "z"})}
    refused = inner._replace(layouts=layouts).refuse(of(Node), "code:1")
    assert refused is not None
    assert "has the field 'z'" in refused.message


class Node(msgspec.Struct):
    place: Place
    child: "Node | None" = None


def test_values_that_need_nothing_of_it_have_no_layout() -> None:
    """Most increments stay as short as they were."""
    assert Recorded({}, {}).after(of(struct("a", LIMIT))).layouts == {}


def test_a_large_default_is_recorded_by_its_hash() -> None:
    """It is in every increment."""
    layout = store_fields(inspect.type_info(omitting(("text", str, "x" * 1000)))).layout
    assert len(layout.absent["text"]) < 30
    (refused,) = following(of(omitting(("text", str, "x" * 1000))), of(omitting(("text", str, "x" * 1001))))
    assert refused is not None


def test_a_default_that_stands_for_no_value_is_the_same_in_each_process() -> None:
    """An object that is never stored: its address is another one after each start."""
    before, now = of(omitting(("limit", Any, object()))), of(omitting(("limit", Any, object())))
    assert list(following(before, now)) == [None]
    (refused,) = following(before, of(omitting(("limit", Any, 100))))
    assert refused is not None


def test_a_default_that_cannot_be_made_is_no_default() -> None:
    """Authors write such a factory for a field that must be given, behind fields that need not be."""

    def must_be_given() -> int:
        raise LookupError("limit")

    fields = of(omitting(("limit", int, msgspec.field(default_factory=must_be_given))))
    assert fields["default"].defaults == {}
    assert list(following(fields, fields)) == [None]
