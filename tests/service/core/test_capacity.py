"""Tests which limit a deployment meets first, and what is said of it."""

from dataclasses import replace

import pytest

from snapreplay.service.core.capacity import Deployment, first_limit, needs, restore_seconds

LARGE = Deployment(100, 10_000, records_per_second=1e6, entries=100_000_000, replicas=1, brokers=10)


def amount(deployment, what):
    """The words of one row."""
    (found,) = [each.amount for each in needs(deployment) if each.what == what]
    return found


@pytest.mark.parametrize(
    ("deployment", "what"),
    [
        (LARGE, "transactions of a broker"),
        (replace(LARGE, brokers=100), "record of the group"),
        (replace(LARGE, processes=20, brokers=100), "CPU of a process"),
    ],
)
def test_what_comes_first_depends_on_the_deployment(deployment, what):
    """Brokers, the record of the group, or the core that a process has."""
    limit = first_limit(needs(deployment))
    assert limit is not None
    assert limit.what == what


def test_what_exceeds_its_limit_has_a_remedy():
    """Whatever grows without bound."""
    for deployment in (replace(LARGE, partitions=100_000), replace(LARGE, processes=5), replace(LARGE, processes=9999)):
        limit = first_limit(needs(deployment))
        assert limit is not None
        assert limit.share > 1
        assert limit.remedy


def test_warm_copies_spare_the_session_timeout_and_the_restore():
    """One process has nobody who goes on."""
    what = "down after a rack is lost"
    assert amount(LARGE, what) == "1.5 s, by warm copies on other racks"
    assert amount(replace(LARGE, replicas=0), what).startswith("16 s;")
    assert amount(Deployment(1, 200, entries=2_000_000), "down for a restart").startswith("16 s;")
    assert restore_seconds(LARGE, 200) == pytest.approx(2 * restore_seconds(LARGE, 100))
