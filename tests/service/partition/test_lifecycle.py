"""Tests of when nothing is waited for any more, and which refusal counts."""

from types import SimpleNamespace
from typing import Any

import pytest

from snapreplay.errors import StopError
from snapreplay.service.core.refusals import DuplicateInstance
from snapreplay.service.partition.lifecycle import Lifecycle
from tests.service.core.test_refusals import EXPECTED
from tests.support.stage import settings_for

NAMESAKE, GROWN = DuplicateInstance("another"), StopError("partitions were added")


def lifecycle() -> Lifecycle:
    context: Any = SimpleNamespace(
        expected=EXPECTED, settings=settings_for("nowhere:1"), partition=0
    )
    return Lifecycle(context)


def test_what_is_held_is_written_before_it_is_released() -> None:
    """A stop and a refusal interrupt all that is waited for, but not while the state is nowhere else."""
    one = lifecycle()
    for end in (one.stop, lambda: one.refuse(GROWN)):
        end()
        assert one.interrupted.is_set()
        one.update(is_holding=True)
        assert not one.interrupted.is_set()
        one.raise_refused()
        one.update(is_holding=False)
    one.take_back()
    assert not one.stopped.is_set()
    with pytest.raises(StopError, match="partitions were added"):
        one.raise_refused()


def test_a_process_of_our_name_is_the_least_of_what_refuses_us() -> None:
    """When it has gone, the rest is still true."""
    one = lifecycle()
    for error, counts in ((NAMESAKE, NAMESAKE), (GROWN, GROWN), (NAMESAKE, GROWN)):
        one.refuse(error)
        assert one.ownership.refused is counts
