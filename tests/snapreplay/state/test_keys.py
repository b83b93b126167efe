"""Keys are exactly of their type."""

from enum import StrEnum
from typing import Any, NamedTuple

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.errors import RecordError, UsageError
from snapreplay.state.keys import KeyCodec
from snapreplay.state.map import MapState


class Pair(NamedTuple):
    a: bytes
    b: int


class Colour(StrEnum):
    RED = "red"


KEYS = st.one_of(st.text(), st.binary(), st.integers(-(2**63), 2**64 - 1))


@given(KEYS)
def test_a_key_reads_back_as_itself(key: str | bytes | int) -> None:
    """And its bytes are plain msgpack, the same as any other writer's."""
    codec = KeyCodec(type(key))
    encoded = codec.encode(key)
    assert codec.unpack(encoded) == key
    assert codec.pack(key) == encoded == msgpack.packb(key)


@pytest.mark.parametrize(
    ("key_type", "key", "word", "hint"),
    [
        (int, True, "bool", "convert it: int(...)"),
        (int, 1.0, "float", "convert it: int(...)"),
        (int, "5", "str", "convert it: int(...)"),
        (str, 5, "int", "convert it: str(...)"),
        (str, Colour.RED, "Colour", "convert it: str(...)"),
        (str, b"a", "bytes", "decode it: `key.decode()`"),
        (str, None, "NoneType", "a record without a key has no entry"),
        (str, ("a", 1), "tuple", "choose one part of it as the str"),
        (bytes, bytearray(b"a"), "bytearray", "convert it: bytes(...)"),
        (bytes, "a", "str", "encode it: `key.encode()`"),
        (bytes, 5, "int", "encode it: `str(key).encode()`"),
    ],
)
def test_other_types_are_refused(key_type: type, key: object, word: str, hint: str) -> None:
    """Also those that are equal to a key of the type: they would be two encodings of one key. The hint never makes
    another key of it: `str(None)` is 'None', `bytes(5)` five NULs."""
    with pytest.raises(RecordError, match=f"of type {word}") as caught:
        KeyCodec(key_type).encode(key)
    assert hint in caught.value.hint


@pytest.mark.parametrize(("key_type", "key"), [(int, 2**64), (int, -(2**63) - 1), (str, "\ud800")])
def test_what_msgpack_cannot_hold_is_refused(key_type: type, key: object) -> None:
    """By a RecordError, not by the encoder's own exception."""
    with pytest.raises(RecordError, match="cannot be encoded"):
        KeyCodec(key_type).encode(key)


@pytest.mark.parametrize(
    "key_type", [bool, float, tuple, None, Colour, tuple[str, ...], tuple[()], tuple[str, tuple[int]], list[int]]
)
def test_other_key_types_are_refused(key_type: type) -> None:
    """At construction, with the way out."""
    with pytest.raises(UsageError, match="key type") as caught:
        KeyCodec(key_type)
    assert "str, bytes, int or a tuple of them such as tuple[str, int]" in caught.value.hint


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (("a", 1), r"has a part of type str in place 1, but the keys of this map are tuple\[bytes, int\]"),
        ((b"a", True), "has a part of type bool in place 2"),
        ((b"a", [1]), "has a part of type list in place 2"),
        ((b"a",), "has 1 of 2 parts"),
        (b"a", "is of type bytes"),
        (Pair(b"a", 1), "is of type Pair"),
        ((b"a", 2**63), "cannot be encoded"),
    ],
)
def test_a_wrong_part_is_named(key: Any, says: str) -> None:
    """In every place that takes a key, also while an equal key of the right types is in the batch."""
    state: MapState[tuple[bytes, int], int] = MapState(tuple[bytes, int], int)
    state[(b"a", 1)] = 1
    state[(b"b", 1)] = 1

    def put() -> None:
        state[key] = 1

    def delete() -> None:
        del state[key]

    for use in (put, delete, lambda: state[key], lambda: key in state, lambda: state.get(key)):
        with pytest.raises(RecordError, match=says):
            use()


@pytest.mark.parametrize("written", [int, tuple[str, int], tuple[str, str, str]])
def test_a_stored_key_of_another_type_is_named(written: Any) -> None:
    """One part or several, with what it holds."""
    key: Any = {int: 7, tuple[str, int]: ("a", 7)}.get(written, ("a", "b", "c"))
    encoded = KeyCodec(written).encode(key)
    for read in (KeyCodec(tuple[str, str]), KeyCodec(str)):
        with pytest.raises(msgspec.MsgspecError) as refused:
            read.unpack(encoded)
        error = read.misfit(encoded, refused.value)
        assert f"the stored key {key!r} is not of type {read.name}" in error.message
