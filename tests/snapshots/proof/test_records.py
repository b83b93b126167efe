"""Tests of what an audit sees in any bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.app.record import RawRecord
from snapreplay.errors import DamagedError, UnknownFormatError
from snapreplay.snapshots.format.envelope import RecordKind, kind_of, open_envelope
from snapreplay.snapshots.proof.records import Condition, judge
from tests.golden.make import FILES, GOLDEN
from tests.support.entries import rewrapped

VALUES = {name: (FILES / f"{name}.bin").read_bytes() for name in GOLDEN}


def judged(value, headers=()):
    return judge(RawRecord("log", 0, 7, 0, None, value, headers))


def as_opened(value):
    """The condition by `open_envelope`, without headers."""
    try:
        open_envelope(value)
    except UnknownFormatError:
        return Condition.UNKNOWN
    except DamagedError:
        return Condition.DAMAGED if value.startswith(b"SNRP") else Condition.FOREIGN
    return Condition.OK


@given(st.sampled_from(sorted(VALUES)), st.data())
def test_an_envelope_is_judged_as_it_is_opened(name, data) -> None:
    """Whole, cut anywhere, any byte changed."""
    value = VALUES[name]
    position = data.draw(st.integers(0, len(value) - 1))
    other = bytes([value[position] ^ data.draw(st.integers(0, 255))])
    for each in (value[:position], value[:position] + other + value[position + 1 :]):
        assert judged(each).condition is as_opened(each)


@pytest.mark.parametrize("name", VALUES)
def test_a_whole_record_is_decoded(name) -> None:
    """As it was encoded."""
    found = judged(VALUES[name])
    assert found.entry == GOLDEN[name].entry
    assert found.kind is not None
    assert RecordKind(found.kind) == kind_of(VALUES[name])


def test_a_header_tells_that_a_record_without_magic_was_ours() -> None:
    """The first bytes lost: damaged, not foreign."""
    value = b"????" + VALUES["claim"][4:]
    assert judged(value).condition is Condition.FOREIGN
    assert judged(value, (("snapreplay.kind", b"claim"),)).condition is Condition.DAMAGED


def test_a_wrong_body_is_reported_without_a_crash() -> None:
    """A claim's body under another kind, sealed."""
    found = judged(rewrapped(VALUES["claim"], kind=RecordKind.INCREMENT))
    assert (found.condition, found.kind, found.entry) == (Condition.UNKNOWN, 3, None)
    assert "missing required field" in found.problem
    assert judged(None).condition is Condition.FOREIGN
