"""The checker knows increments that change the inputs, and finds those that change more, or are none."""

from typing import Any

import msgspec
import pytest

from tests.checker import wire
from tests.checker.chain import Chain
from tests.checker.verdict import Verdict

DECIDED = {"finding": "inputs-changed-12345678"}
LAST: dict[str, Any] = {
    "origin": {"app_id": "a", "app_version": "1", "schema_version": 1, "fingerprint": "f"},
    "owner_epoch": 0,
    "batch": 0,
    "previous_offset": -1,
    "ranges": [],
    "positions": {"x": 3, "y": 4},
    "record_count": 0,
    "skipped": [],
    "pointers": [],
    "changes": None,
    "outputs": {},
    "digest": [0, 0, 0],
    "genesis": {"start_offsets": {"x": 3, "y": 4}},
    "stream_time_ms": -1,
}


def found_in(**changed: Any) -> list[str]:
    """Return what the checker says of an increment that follows the first one."""
    verdict = Verdict()
    chain = Chain("a", "log-0", 0, verdict)
    chain.claim(0, wire.Claim("c", "a", "p", 1))
    following = LAST | {"batch": 1, "previous_offset": 2, "decision": DECIDED} | changed
    for offset, each in ((2, LAST), (4, following)):
        chain.increment(offset, msgspec.convert(each, wire.Increment))
    return [str(each) for each in verdict.violations]


def of(**positions: int) -> dict[str, Any]:
    return {"positions": positions, "genesis": {"start_offsets": positions}}


@pytest.mark.parametrize("changed", [of(x=3, y=4, z=0), of(y=4), of(y=4, z=9)])
def test_an_input_more_or_less_is_good(changed):
    """Where a decision says so."""
    assert found_in(**changed) == []


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({**of(y=4), "decision": None}, "its genesis began at"),
        ({"positions": {"x": 3}, "decision": None}, "it has the inputs ['x']"),
        ({**of(x=3, y=5, z=0)}, "it changes the place in y"),
        ({**of(x=3, y=4)}, "it changes inputs from"),
        ({**of(y=4), "digest": [1, 0, 0]}, "it changes inputs, and more"),
        ({"decision": {"finding": "accepted"}}, "a decision in the chain"),
    ],
)
def test_any_other_fault_is_found(changed, says):
    """Another place, another state, other inputs without a decision, a decision of another kind."""
    assert any(says in each for each in found_in(**changed))
