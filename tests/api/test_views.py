"""Tests of the way from statuses to what is shown."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.api import views
from snapreplay.api.fleet_views import Held
from snapreplay.service.control.status import PartitionStatus, Progress, RecoveryStatus
from snapreplay.service.core.phase import Phase
from tests.support.fake_control import LIVE, NOW, ago, alone

NOW_MS = int(NOW.timestamp() * 1000)
statuses = st.builds(
    PartitionStatus,
    partition=st.integers(0, 9),
    phase=st.sampled_from(Phase),
    restore=st.none()
    | st.builds(
        RecoveryStatus,
        attempts=st.integers(1, 5),
        started_at=st.just(NOW),
        progress=st.none()
        | st.builds(
            Progress,
            unit=st.just("bytes"),
            from_=st.integers(0, 2**40),
            current=st.integers(0, 2**40),
            target=st.integers(0, 2**40),
        ),
    ),
)


@given(st.lists(statuses, max_size=5))
def test_every_status_can_be_shown(given_statuses):
    """For any status of the runners, the summary is consistent and percents are 0 to 100."""
    shown = views.restore_status(alone(given_statuses))
    assert [each.partition for each in shown.partitions] == [s.partition for s in given_statuses]
    assert all(0 <= (each.percent or 0) <= 100 for each in shown.partitions)
    held = [each for each in shown.partitions if each.phase is not Phase.CLOSED]
    assert sum(shown.summary.partitions_by_phase.values()) == len(held)
    assert (shown.summary.percent is None) == (not held)
    assert shown.summary.all_live == (
        bool(held) and all(each.percent == 100 and each.phase is Phase.LIVE for each in held)
    )


def test_age_is_never_negative():
    """A clock that was set back gives age 0, not an invalid answer."""
    assert views.partition(Held(0, None, LIVE), ago(1000)).progress_age_seconds == 0
    assert views.partition(Held(0, None, LIVE), NOW).progress_age_seconds == 0.5


def test_stream_time_is_behind_or_ahead():
    """A record of tomorrow shows as less than 0; without a record nothing is known."""
    for at_ms, lag in ((None, None), (NOW_MS - 500, 0.5), (NOW_MS + 86_400_000, -86_400)):
        status = msgspec.structs.replace(LIVE, stream_time_ms=at_ms)
        assert views.partition(Held(0, None, status), NOW).stream_time_lag_seconds == lag
