"""Codecs read back what they wrote, and refuse the rest."""

from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache, partial, singledispatch, wraps
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pydantic
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from snapreplay.app.codecs import i32, i64, json, msgpack, nullable, raw, unchecked, utf8
from snapreplay.errors import UsageError


class Payment(msgspec.Struct):
    amount: int
    note: str = ""


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.text(st.characters(codec="utf-8")))
def test_utf8_reads_back(text):
    """Any text without lone surrogates survives; one with a NUL is none, on both ways."""
    if "\0" in text:
        with pytest.raises(ValueError, match="NUL"):
            utf8.encode(text)
        with pytest.raises(ValueError, match="NUL"):
            utf8.decode(text.encode())
        return
    assert utf8.decode(utf8.encode(text)) == text


@pytest.mark.parametrize("number", [1, 65, 255, 256, 300, 2**31 - 1, -1, -128, -(2**31)])
@pytest.mark.parametrize("codec", [i64, i32], ids=["LongSerializer", "IntegerSerializer"])
def test_a_number_of_another_serializer_is_no_text(codec, number):
    """172 of 300 were: b"\\0\\0\\0\\0\\0\\0\\0A" is seven NULs and an A."""
    with pytest.raises(ValueError):  # noqa: PT011 - NUL, or no UTF-8
        utf8.decode(codec.encode(number))


@pytest.mark.parametrize(("codec", "size_bytes"), [(i32, 4), (i64, 8)], ids=["IntegerSerializer", "LongSerializer"])
@given(data=st.data())
def test_an_integer_has_the_bytes_of_kafkas_serializer(codec, size_bytes, data):
    """Big endian, with a sign."""
    number = data.draw(st.integers(-(2 ** (8 * size_bytes - 1)), 2 ** (8 * size_bytes - 1) - 1))
    assert codec.encode(number) == number.to_bytes(size_bytes, "big", signed=True)
    assert codec.decode(codec.encode(number)) == number


@pytest.mark.parametrize(
    ("codec", "data"), [(json(), b"null"), (json(), b" null\n"), (json(Payment | None), b"null"), (msgpack(), b"\xc0")]
)
def test_bytes_that_hold_a_null_are_no_tombstone(codec, data):
    """As None they could not be told from no bytes, and passing None on deletes."""
    with pytest.raises(ValueError, match="hold a null"):
        codec.decode(data)


@given(JSON_VALUES)
@pytest.mark.parametrize("codec", [json(), msgpack()], ids=["json", "msgpack"])
def test_untyped_values_read_back(codec, value):
    """Every plain value survives (None is the topic's null, which the codec itself does not see)."""
    assume(value is not None)
    assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (utf8, b"\xff"),
        (i64, b"\x00" * 7),
        (json(), b"{"),
        (json(), b"[" * 100_000),
        (json(Payment), b'{"amount":"1"}'),
        (msgpack(Payment), msgspec.msgpack.encode({"amount": None})),
        (msgpack(), b"\xdd\xff\xff\xff\xff"),
        (msgpack(), b"\xdf\xff\xff\xff\xff"),
        (msgpack(), b"\xc6\xff\xff\xff\xff"),
        (raw, None),
        (utf8, None),
        (i64, None),
        (json(Payment), None),
        (msgpack(Payment), None),
    ],
)
def test_bad_bytes_are_refused_without_trying_to_hold_them(codec, data):
    """Any exception but MemoryError: a length of 2^32 - 1 must not be believed, null is not
    decoded."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any error means "cannot"
        codec.decode(data)
    assert not isinstance(caught.value, MemoryError)


@pytest.mark.parametrize(
    ("codec", "value"), [(utf8, 5), (utf8, b"x"), (i64, True), (i64, 2**63), (i32, True), (i32, 2**31), (raw, "x")]
)
def test_values_of_another_type_are_not_written(codec, value):
    """What would be read back as something else is not encoded."""
    with pytest.raises(Exception):  # noqa: B017, PT011 - any error means "cannot"
        codec.encode(value)


def test_encoding_does_not_depend_on_insertion_order():
    """A dict made in this batch and one read back from the state give the same output bytes."""
    one, other = {"b": 1, "a": {"d": 1, "c": 2}}, {"a": {"c": 2, "d": 1}, "b": 1}
    for codec in (json(), msgpack()):
        assert codec.encode(one) == codec.encode(other)


@pytest.mark.parametrize(
    ("codec", "takes_null"),
    [
        (json(), True),
        (json(Any), True),
        (json(Payment), False),
        (json(Payment | None), True),
        (msgpack(dict), False),
        (utf8, False),
        (nullable(utf8), True),
        (nullable(raw), True),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_null_is_a_value_only_where_the_type_says_so(codec, takes_null):
    """A tombstone never turns into a value by accident."""
    assert codec.nullable is takes_null


class Event(msgspec.Struct):
    x: int


class Answer(msgspec.Struct):
    y: int


@pytest.mark.parametrize("codec", [json, msgpack])
def test_a_type_that_cannot_be_decoded_is_refused(codec: Any) -> None:
    """With the codec, the cause as msgspec says it, and a remedy that works."""
    name = codec.__name__
    with pytest.raises(UsageError, match=rf"{name}\(.*Event | .*Answer\) .* must be tagged") as caught:
        codec(Event | Answer)
    assert caught.value.hint == (
        "give each Struct of the union a tag: class Event(msgspec.Struct, tag=True), "
        "class Answer(msgspec.Struct, tag=True)"
    )
    event = msgspec.defstruct("Event", [("x", int)], tag=True)
    answer = msgspec.defstruct("Answer", [("y", int)], tag=True)
    tagged = codec(event | answer)
    assert tagged.decode(tagged.encode(answer(1))) == answer(1)
    with pytest.raises(UsageError, match=rf"{name}\(.*object.*not supported") as caught:
        codec(object())
    assert "a dataclass" in caught.value.hint


class Shown(pydantic.BaseModel):
    id: str
    at: datetime = datetime(2026, 1, 2, tzinfo=UTC)
    price: Decimal = Decimal("1.50")
    tags: set[str] = set()
    rate: float = 0.0


class Drawn(pydantic.BaseModel):
    id: str
    number: UUID = pydantic.Field(default_factory=uuid4)


def test_a_pydantic_model():
    """Equal values are equal bytes, also with a set; what differs at each call is refused."""
    codec = json(Shown)
    value = Shown(id="a", tags={"b", "a", "c"})
    data = b'{"at":"2026-01-02T00:00:00Z","id":"a","price":"1.50","rate":0.0,"tags":["a","b","c"]}'
    assert codec.name == "json(Shown)"
    assert codec.encode(value) == data
    assert codec.decode(data) == value
    with pytest.raises(ValueError, match="id"):
        codec.decode(b"{}")
    with pytest.raises(TypeError, match="expected Shown, got dict"):
        codec.encode({"id": "a"})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nan"):
        codec.encode(Shown(id="a", rate=float("nan")))
    number = uuid4()
    assert json(Drawn).decode(json(Drawn).encode(Drawn(id="a", number=number))) == Drawn(id="a", number=number)
    with pytest.raises(ValueError, match="such as 'number' of Drawn"):
        json(Drawn).decode(b'{"id":"a"}')


class Proxy:
    """Has every attribute of what it wraps, as a decorator of wrapt."""

    def __init__(self, wrapped):
        self.__wrapped__ = wrapped

    def __getattr__(self, name):
        return getattr(self.__wrapped__, name)

    def __call__(self, value):
        return b"sealed:" + self.__wrapped__(value)


def sealed(encode):
    return wraps(encode)(lambda value: b"sealed:" + encode(value))


def test_only_the_encoder_of_json_is_used_without_its_check():
    """A decorator adds something of its own, which would be lost without a word."""
    encode = json(Payment).encode
    inner = unchecked(encode)
    assert inner is not None
    assert inner(float("nan")) == b"null"
    assert inner(Payment(1)) == encode(Payment(1))
    others = [each(encode) for each in (sealed, singledispatch, lru_cache, partial, Proxy)]
    others += [each.encode for each in (raw, utf8, i64, msgpack(), json(Shown))]
    assert [unchecked(each) for each in others] == [None] * len(others)
