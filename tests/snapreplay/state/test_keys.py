"""Keys are exactly of their type."""

from enum import StrEnum

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.errors import RecordError, UsageError
from snapreplay.state.keys import KeyCodec


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
    ("key_type", "key", "word"),
    [
        (int, True, "bool"),
        (int, 1.0, "float"),
        (str, b"a", "bytes"),
        (str, Colour.RED, "Colour"),
        (bytes, bytearray(b"a"), "bytearray"),
        (str, None, "NoneType"),
    ],
)
def test_other_types_are_refused(key_type: type, key: object, word: str) -> None:
    """Also those that are equal to a key of the type: they would be two encodings of one key."""
    with pytest.raises(RecordError, match=f"of type {word}") as caught:
        KeyCodec(key_type).encode(key)
    assert caught.value.hint == f"convert it: {key_type.__name__}(...)"


@pytest.mark.parametrize(("key_type", "key"), [(int, 2**64), (int, -(2**63) - 1), (str, "\ud800")])
def test_what_msgpack_cannot_hold_is_refused(key_type: type, key: object) -> None:
    """By a RecordError, not by the encoder's own exception."""
    with pytest.raises(RecordError, match="cannot be encoded"):
        KeyCodec(key_type).encode(key)


@pytest.mark.parametrize("key_type", [bool, float, tuple, None, Colour])
def test_other_key_types_are_refused(key_type: type) -> None:
    """At construction, with the way out."""
    with pytest.raises(UsageError, match="key type") as caught:
        KeyCodec(key_type)
    assert "str, bytes or int" in caught.value.hint
