"""Every course of one attempt of a recovery, also with a state or a warm copy in memory: what must never be skipped."""

from snapreplay.service.core import effects, events
from snapreplay.service.core.phase import Phase, may_follow
from tests.support.courses import all_ways

PROOF = (
    events.FenceDone,
    events.ClaimAcknowledged,
    events.ClaimSeen,
    events.WindowRead,
    events.StartsRead,
    events.StartLoaded,
    events.Advanced,
    events.InputsChecked,
)
COPY_PROOF = tuple(each for each in PROOF if each is not events.StartLoaded)
WARM_PROOF = (*PROOF[:4], events.TopicIdsRead, events.Reentered, events.InputsChecked)


def test_every_course_is_by_allowed_transitions_and_live_by_the_whole_proof() -> None:
    """Without loading only with the state in memory, and only where nothing was loaded over it meanwhile."""
    lives = 0
    for course in all_ways():
        each = course[-1]
        assert each.after.phase is each.before.phase or may_follow(each.before.phase, each.after.phase)
        is_live = isinstance(each.effect, effects.GoLive)
        assert (each.after.phase is Phase.LIVE) == is_live
        if is_live:
            lives += 1
            loaded = any(isinstance(each.effect, effects.Load) for each in course)
            copied = not loaded and course[0].before.copy is not None
            assert loaded or copied or course[0].before.kept is not None
            last = {type(each.event): number for number, each in enumerate(course)}
            if not loaded and course[-1].after.window is None:  # nothing lies before the claim
                last[events.WindowRead] = last[events.ClaimSeen]
            order = [last[kind] for kind in (PROOF if loaded else COPY_PROOF if copied else WARM_PROOF)]
            assert order == sorted(order)
            assert last.get(events.InputsAdded, -1) < last[events.InputsChecked]
    assert lives > 50
