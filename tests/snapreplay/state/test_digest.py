"""The fingerprint of a set of entries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.state.digest import EMPTY, MASK, Digest, digest_of, digest_of_stores, entry_hashes, recorded_digests
from tests.support.engines import each_engine

__all__ = ["each_engine"]
pytestmark = pytest.mark.usefixtures("each_engine")

ENTRIES = st.dictionaries(st.binary(max_size=12), st.binary(max_size=12), max_size=12)


def test_the_numbers_never_change() -> None:
    """Logs hold them: XXH64 with seed 42, chained value over key and key over value."""
    assert entry_hashes(b"", b"") == (0x5870CFF3F060F462, 0x5870CFF3F060F462)
    assert str(digest_of([(b"\xa1a", b"\x01"), (b"\xa1b", b"\x02")])) == ("2:6dab36cde4554f93:25506b1b340e77ea")


def test_the_numbers_of_stores_never_change() -> None:
    """Each store's sums are multiplied by XXH64(name, seed 42) | 1, and those of the default store by 1."""
    digest = Digest(1, 3, MASK)
    assert digest.in_store("default") == digest
    factor = 0x34878AB9F49F77C1
    assert digest.in_store("items") == Digest(1, 3 * factor & MASK, MASK * factor & MASK)
    both = {"default": digest, "items": digest}
    assert digest_of_stores(both) == digest.plus(digest.in_store("items"))
    assert recorded_digests({**both, "none": EMPTY}) == both
    assert recorded_digests({"default": digest, "none": EMPTY}) == {}


@given(ENTRIES, ENTRIES)
def test_digests_of_disjoint_sets_add_up(left: dict[bytes, bytes], right: dict[bytes, bytes]):
    """So slices of a snapshot prove the whole of it."""
    right = {key: value for key, value in right.items() if key not in left}
    a, b, both = (digest_of(d.items()) for d in (left, right, left | right))
    assert both == a.plus(b) == Digest(a.count + b.count, (a.a + b.a) & MASK, (a.b + b.b) & MASK)
