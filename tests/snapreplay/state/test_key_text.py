"""Keys as text: each has one, which reads back as that key, and what is no key is refused without being repeated."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from snapreplay.state.keys import KeyCodec, WrongKey, bound_of, key_of, text_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
INTS = st.integers(-(2**63), 2**63 - 1)
PARTS = {str: TEXTS, bytes: st.binary(), int: INTS}


@st.composite
def typed_keys(draw):
    parts = draw(st.lists(st.sampled_from([str, bytes, int]), min_size=1, max_size=4))
    if len(parts) == 1 and draw(st.booleans()):
        return parts[0], draw(PARTS[parts[0]])
    return tuple.__class_getitem__(tuple(parts)), tuple(draw(PARTS[part]) for part in parts)


@given(typed_keys())
@example((str, '["a"]'))
@example((str, ""))
@example((int, -(2**63)))
@example((tuple[bytes], (b"\xff",)))
def test_a_key_reads_back(typed):
    """Of every type, for every key."""
    key_type, key = typed
    assert key_of(text_of(key), KeyCodec(key_type)) == key


REFUSED = [
    (int, "1.0"), (int, "+1"), (int, "01"), (int, "-0"), (int, "1_0"), (int, " 1"), (int, ""), (int, "9" * 5000),
    (int, str(2**64)), (int, "٣"), (bytes, "a"), (bytes, "YQ"), (bytes, "YR=="), (bytes, "é"), (bytes, "a b="),
    (tuple[str, int], "tea"), (tuple[str, int], '["tea"]'), (tuple[str, int], '["tea",1,2]'),
    (tuple[str, int], '["tea",true]'), (tuple[str, int], '["tea","1"]'), (tuple[str, int], f'["tea",{2**64}]'),
    (tuple[str, int], '{"a":1}'), (tuple[str, int], "[" * 100_000), (tuple[bytes], '["?"]'),
    (tuple[str], '["\\ud800"]'),
    (str, "\ud800"),
]  # fmt: skip


@pytest.mark.parametrize(("key_type", "text"), REFUSED)
def test_what_is_no_key_is_refused(key_type, text):
    """The message says how the key is written; the text itself may be a secret."""
    with pytest.raises(WrongKey) as refused:
        key_of(text, KeyCodec(key_type))
    assert getattr(key_type, "__name__", "tuple") in refused.value.why
    assert len(text) < 4 or text not in str(refused.value)


def test_bounds_are_the_first_parts():
    """Of a tuple any number of its first parts; of another key a key."""
    codec = KeyCodec(tuple[str, int])
    assert [bound_of(text, codec) for text in ("[]", '["tea"]', '["tea",3]')] == [(), ("tea",), ("tea", 3)]
    assert bound_of("te", KeyCodec(str)) == "te"
    with pytest.raises(WrongKey):
        bound_of('["tea",3,4]', codec)
