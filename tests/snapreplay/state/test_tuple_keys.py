"""Keys of several parts."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import MsgspecError

from snapreplay.state.keys import KeyCodec, is_tuple_key, stored_key, tuple_packer, unpack_tuple

PARTS: dict[type, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(codec="utf-8"), max_size=4) | st.sampled_from(["", "\0", "\0\0", "a\0", "\x7f\x80"]),
    bytes: st.binary(max_size=4) | st.sampled_from([b"\0", b"\0\xff", b"\xff", b"\0\0", b"\x01"]),
    int: st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
}
TYPES = st.lists(st.sampled_from(list(PARTS)), min_size=1, max_size=3).map(tuple)


@st.composite
def two_keys(draw: st.DrawFn) -> tuple[tuple[type, ...], Any, Any]:
    """Draw two keys of the same types."""
    types = draw(TYPES)
    one, other = (tuple(draw(PARTS[each]) for each in types) for _ in range(2))
    return types, one, other


@given(two_keys())
@example(((str, str), ("a", "\0b"), ("a\0", "b")))
@example(((bytes, int), (b"\0", -1), (b"\0\0", -2)))
@example(((int,), (-(2**63),), (2**63 - 1,)))
def test_the_order_of_the_bytes_is_that_of_the_tuples(keys: Any) -> None:
    """And equal bytes are equal tuples, so they read back; without their types, too."""
    types, one, other = keys
    pack = tuple_packer(types)
    assert (pack(one) < pack(other)) == (one < other)
    assert (pack(one) == pack(other)) == (one == other)
    for key in (one, other):
        assert unpack_tuple(pack(key)) == key == stored_key(pack(key))
        assert is_tuple_key(pack(key))


def test_the_bytes_never_change() -> None:
    """Logs hold them."""
    packed = tuple_packer((bytes, str, int))((b"a\0b", "\u00e4", -1))
    assert packed == b"\xc1\x01a\0\xffb\0\x02\xc3\xa4\0\x03\x7f\xff\xff\xff\xff\xff\xff\xff"


@given(st.binary(max_size=12))
@example(b"\xc1\x01a")
@example(b"\xc1\x01a\0\xff")
@example(b"\xc1\x03\0")
@example(b"\xc1\x02\xff\0")
@example(b"\xc1\x04")
def test_other_bytes_are_refused_or_are_a_key(encoded: bytes) -> None:
    """Nothing else is raised."""
    try:
        key = unpack_tuple(encoded)
    except ValueError:
        return
    assert all(type(part) in PARTS for part in key)


SOME: dict[type, list[Any]] = {
    str: ["", "a", "\0", "\x02b", "a\0\x02b", "\ufffd"],
    bytes: [b"", b"a", b"\0", b"\x02b\0", b"\0\xff"],
    int: [0, 1, 2, -1, 2 << 8, 0x02_62_00, (2 << 56) - 2**63, -(2**63)],
}
"""Few, so that keys share their first parts; with zeros and with the tags of parts inside."""


@st.composite
def keys_of_one_type(draw: st.DrawFn) -> tuple[tuple[type, ...], list[Any]]:
    types = draw(TYPES)
    return types, draw(st.lists(st.tuples(*(st.sampled_from(SOME[each]) for each in types)), max_size=8))


@given(keys_of_one_type())
@example(((int, str), [(2, "alpha"), (2, "beta"), (2, "\0"), (512, "a"), (2, "a")]))
@example(((str, int, str), [("a", 2, "x"), ("a", 2, "y"), ("a\0", 2, "y"), ("", 0x02_62_00, "")]))
@example(((bytes, str), [(b"a", "x"), (b"a", "y"), (b"a\0", "\x02y")]))
def test_keys_read_back_in_any_order(drawn: Any) -> None:
    """A decoder remembers the first parts of the last key."""
    types, keys = drawn
    codec: KeyCodec[Any] = KeyCodec(tuple[types])  # type: ignore[valid-type]
    assert [codec.decode(codec.encode(key)) for key in keys] == keys


@given(
    st.sampled_from([(str, int), (bytes, int), (int, int), (str, bytes, int), (str, str), (int, str), (str, int, str)]),
    st.lists(st.tuples(two_keys(), st.integers(1, 12)), max_size=6),
    st.lists(st.binary(max_size=12), max_size=3),
)
@example((str, int), [(((str, int), ("abc", 1), ("abd", 1)), 1)], [])
@example((int, str), [(((int, str), (2, "a"), (2, "b")), 1)], [b"\xc1", b""])
@example(
    (str, str), [(((str, str), ("a", "b"), ("a", "c")), 1), (((str, str, str), ("a", "b", "c"), ("a", "", "")), 1)], []
)
def test_what_a_decoder_remembers_changes_nothing(types: Any, drawn: Any, other: list[bytes]) -> None:
    """It gives the same key or error as a new decoder, after keys of its type, of another one and damaged ones."""
    key_type: Any = tuple[types]
    remembering = KeyCodec(key_type)
    for (drawn_types, *keys), cut in drawn:
        for key in keys:
            packed = tuple_packer(drawn_types)(key)
            for encoded in (packed, packed[:-cut], packed, *(packed[:-cut] + each for each in other)):
                assert decoded(remembering, encoded) == decoded(KeyCodec(key_type), encoded)


def decoded(codec: KeyCodec[Any], encoded: bytes) -> object:
    try:
        return codec.unpack(encoded)
    except MsgspecError as error:
        return str(error)
