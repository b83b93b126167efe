"""Tests of the moment of the kill, and of the judgement of a takeover. The act itself is in `test_demo`."""

from typing import Any

import pytest

from examples.demo.judging import taken_over
from examples.demo.record import Takeover, Told
from examples.demo.standby_act import is_copied, takeover


def restore(owned: str, warm: str, phase: str = "live") -> dict[str, Any]:
    return {
        "partitions": [{"partition": int(each), "phase": phase, "proof": {"equal": True}} for each in owned],
        "standbys": [{"partition": int(each), "state": "warm"} for each in warm],
    }


@pytest.mark.parametrize(
    ("one", "other", "ready"),
    [
        (restore("01", "23"), restore("23", "01"), True),
        (restore("0123", ""), restore("", "0123"), False),  # two are about to move
        (restore("01", "2"), restore("23", "01"), False),
        (restore("01", "23"), restore("23", "01", phase="loading"), False),
        (restore("01", "23"), restore("12", "03"), False),
    ],
)
def test_both_are_ready(one: dict[str, Any], other: dict[str, Any], ready: bool) -> None:
    """Each owns half, and has a warm copy of the rest."""
    assert is_copied(one, other) is ready


def test_a_partition_without_a_proof_is_found() -> None:
    """Only those of the dead process need one."""
    status = restore("0123", "")
    status["partitions"][1]["proof"] = None
    told = Told(1, takeover=takeover(status, {0, 1}, 0.25))
    assert told.takeover == Takeover(0.25, frozenset({0, 1}), frozenset({0}))
    verdict = taken_over(told)
    assert not verdict.holds
    assert verdict.findings == ["partition 1: no digest was compared"]
    assert taken_over(Told(1, takeover=takeover(status, {0, 2}, 0.25))).detail.startswith("250 ms after SIGKILL")
    assert not taken_over(Told(1, takeover=takeover(status, set(), 0.25))).holds
