"""Tests of which manifests prove that increments were lost."""

import msgspec
import pytest

from snapreplay.service.core.log_cut import is_recent, shows_cut
from snapreplay.service.core.search import FoundIncrement
from tests.support.entries import GENESIS, ORIGIN, increment, manifest

LAST = FoundIncrement(increment(5, owner_epoch=4), 20)
LOST = manifest("s", [], batch=6, increment_offset=23, owner_epoch=4)


def test_a_later_batch_of_an_owner_is_a_witness():
    """Nothing else can have written it."""
    assert shows_cut(LOST, LAST)


@pytest.mark.parametrize(
    "changed",
    [
        {"batch": 5},
        {"proposed_by": "compact@host/1"},
        {"increment_offset": 20},  # a later batch lies behind the last increment
        {"origin": msgspec.structs.replace(ORIGIN, app_id="other")},
        {"genesis": msgspec.structs.replace(GENESIS, cluster_id="other")},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_no_owner_of_this_chain_wrote_is_none(changed):
    """It was proposed, or copied, or is impossible."""
    assert not shows_cut(msgspec.structs.replace(LOST, **changed), LAST)


def test_nothing_older_than_a_manifest_of_the_last_owner_is_looked_at():
    """A zombie's may lie behind it, and a proposal anywhere."""
    mine = msgspec.structs.replace(LOST, batch=5)
    assert is_recent(mine, LAST)
    assert not is_recent(LOST, LAST)
    assert not is_recent(msgspec.structs.replace(mine, owner_epoch=3), LAST)
    assert not is_recent(msgspec.structs.replace(mine, proposed_by="a job"), LAST)
