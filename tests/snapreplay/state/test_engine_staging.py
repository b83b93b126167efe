"""What a batch touched is encoded and checked in the same way by the compiled engine and without it."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_origin
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from snapreplay.errors import RecordError
from snapreplay.state import staging as staging_module
from snapreplay.state.map import MapState
from snapreplay.state.staging import encoded_default
from snapreplay.state.steps import all_of
from snapreplay.state.values import ValueCodec
from tests.support.engines import needs_engine, pure, with_engine

__all__ = ["with_engine"]
pytestmark = [needs_engine, pytest.mark.usefixtures("with_engine")]


class Row(msgspec.Struct):
    number: int = 0
    text: str | None = None


class Wide(Row):
    """Encoded as its base, and read back as that."""


class Frozen(msgspec.Struct, frozen=True):
    number: int = 0
    text: str | None = None


@dataclass
class Plain:
    number: int = 0
    text: str | None = None


T = TypeVar("T")


class Box(msgspec.Struct, Generic[T]):
    number: T | int = 0
    text: str | None = None


@dataclass
class Crate(Generic[T]):
    number: T | int = 0
    text: str | None = None


class Whole(int):
    """No plain int."""


def without(cls: type[Any], name: str) -> Any:
    """Make one without this attribute."""
    made = cls()
    delattr(made, name)
    return made


class Sudden(BaseException):
    """An error that is no `Exception`."""


class Odd(Plain):
    """No plain one."""


SHARED: list[Any] = [Row(1), Plain(1), Frozen(1), Box(1), Crate(1)]
TYPES: dict[str, Any] = {each.__name__: each for each in (Row, Plain, Frozen)} | {"Box": Box[int], "Crate": Crate[int]}


def made(cls: type[Any], number: int) -> Any:
    """Make one of a few values: usual ones, one that is shared, and odd ones."""
    match number:
        case 0 | 1 | 2:
            return cls(number)
        case 3:
            return cls(3, "text")
        case 4:
            return next(each for each in SHARED if type(each) is (get_origin(cls) or cls))
        case 5:
            return cls(True)
        case 6:
            return cls(1 << 70)
        case 7:
            return cls(Whole(7))
        case 8:
            return cls(0, ["list"])
        case 9:
            return cls(0, "\ud800")
        case 10:
            return cls(0, "x" * 500)
        case 11:
            return cls("text", 3)
        case 12:
            return without(cls, "text") if cls is not Frozen else cls()
        case 13:
            return Wide(1)
        case 14:
            return Odd(2)
        case _:
            return None


VALUES = st.lists(st.one_of(st.integers(0, 4), st.integers(0, 15), st.just("delete")), min_size=1, max_size=12)


def staged(cls: type[Any], numbers: list[Any]) -> object:
    """Set some keys, stage them, and return what is staged, or the error."""
    state: MapState[str, Any] = MapState(str, cls, default=cls, entry_bytes_max=400)
    store: Any = state.__snapreplay_store__()
    for place, number in enumerate(numbers):
        key = f"key{place}"
        state[key] = made(cls, 0 if number == "delete" else number)
        if number == "delete":
            del state[key]
    try:
        all_of(store.staging())
    except (RecordError, AttributeError) as error:
        return str(error), repr(error.__cause__)
    return list(store._staged.items())


@pytest.mark.parametrize("cls", TYPES.values(), ids=TYPES)
@example([4, 4])
@example([0, "delete", 1])
@example([0] * 9 + [4, 4])
@given(VALUES)
def test_the_engine_stages_what_python_stages(cls: type[Any], numbers: list[Any]) -> None:
    """Also in blocks, and from the last one of a block to the first one of the next."""
    for block in (512, 2):
        with patch.object(staging_module, "BLOCK", block):
            with pure():
                expected = staged(cls, numbers)
            assert staged(cls, numbers) == expected


@pytest.mark.parametrize("cls", TYPES.values(), ids=TYPES)
@given(st.lists(st.integers(0, 15), max_size=6))
def test_values_are_flat_for_both(cls: type[Any], numbers: list[int]) -> None:
    """Or neither takes them, by the same error."""
    values = [made(cls, number) for number in numbers]

    def checked() -> object:
        try:
            return ValueCodec(cls).are_flat(values)
        except AttributeError as error:
            return str(error)

    with pure():
        expected = checked()
    assert checked() == expected


def test_an_error_that_is_no_exception_is_not_swallowed() -> None:
    """A signal comes once."""
    asked: list[str] = []

    class Asking(Plain):
        def __getattribute__(self, name: str) -> Any:
            if name == "number":
                asked.append(name)
                if len(asked) == 1:
                    raise Sudden
            return super().__getattribute__(name)

    codec: ValueCodec[Any] = ValueCodec(dataclass(Asking))
    with pytest.raises(Sudden):
        codec.are_flat([Asking()])


def test_a_default_is_encoded() -> None:
    """Its place is in a list, also with the engine."""
    assert encoded_default(ValueCodec(Row), Row) == msgspec.msgpack.encode(Row())
