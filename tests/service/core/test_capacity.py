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


@pytest.mark.parametrize(
    ("what", "with_copies", "without"),
    [
        ("CPU of a process", "0.18 cores", "0.12 cores"),
        ("memory of a process", "425 MB, 523 MB after a rack is lost", "245 MB, 343 MB after a rack is lost"),
        ("connections of a process", "211", "111"),
        ("connections of a broker", "2,110", "1,110"),
    ],
)
def test_a_copy_costs_also_while_nothing_comes(what, with_copies, without):
    """Looks at the log, a reader and its connection."""
    assert amount(LARGE, what) == with_copies
    assert amount(replace(LARGE, replicas=0), what) == without


def test_topics_hold_the_snapshots_that_are_kept_and_the_increments_since_the_oldest():
    """By the entries' size in memory, and by what is committed. A deployment without records has no increments."""
    what = "topics of the app, each replica"
    assert amount(LARGE, what) == "5.4 GB snapshots, 14.4 GB increments"
    assert amount(replace(LARGE, entry_bytes=320), what) == "10.7 GB snapshots, 14.4 GB increments"
    assert amount(replace(LARGE, records_per_second=0), what) == "5.4 GB snapshots, 0 MB increments"


def test_a_rolling_restart_rebalances_twice_for_each_process():
    """It leaves, and it joins again."""
    assert amount(LARGE, "rebalances of a rolling restart") == "at least 200, which write 128 MB"


def test_without_copies_a_loss_lasts_as_long_as_the_session_and_the_restore():
    """The session timeout may be another one."""
    long = replace(LARGE, replicas=0, session_seconds=45)
    assert amount(long, "down after a rack is lost").startswith("51 s;")
