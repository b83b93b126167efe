"""Whether a peer lives, judged without a clock."""

import pytest

from snapreplay.service.core.liveness import REFUSED_SECONDS, Life, PeerState

WHY = "10.0.3.17 port 8080 refuses connections"


@pytest.fixture
def life() -> Life:
    """A peer that was heard at 100, and seems to be dead after 3 s of silence."""
    life = Life(90.0, 3.0)
    life.answered(100.0, 0.5)
    return life


def test_a_peer_that_was_never_heard_is_never_suspected():
    """Its address may be wrong, or unreachable from here only."""
    life = Life(0.0, 3.0)
    assert life.refused(0.0, WHY) is None
    assert life.refused(10.0, WHY) is None
    life.lost(11.0, "no route")
    life.answered(12.0, 30.0)
    assert life.due(1000.0) is None
    assert (life.state, life.error) == (PeerState.UNREACHABLE, "its service has been silent for 30.0 s")


def test_silence_counts_from_the_last_answer_of_the_service(life):
    """Half a second had passed when it was heard. It is said once, until the peer is heard again."""
    assert life.due(102.4) is None
    assert life.due(102.5) == "silent for 3.0 s"
    assert (life.state, life.since) == (PeerState.DEAD, 102.5)
    assert life.due(103.0) is None
    life.answered(104.0, 4.5)
    assert life.state is PeerState.DEAD
    life.answered(105.0, 0.1)
    assert (life.state, life.error, life.since) == (PeerState.REACHABLE, "", 105.0)
    assert life.due(107.9) == "silent for 3.0 s"


def test_a_frozen_service_is_noticed_although_its_http_answers(life):
    """The heartbeats come, and say how old the last answer is."""
    life.answered(102.0, 2.0)
    life.answered(102.9, 2.9)
    assert life.due(102.9) is None
    life.answered(103.5, 3.5)
    assert life.due(103.5) == "silent for 3.5 s"


def test_refused_connections_mean_death_after_a_moment(life):
    """Not before: its service may start another process for HTTP. Not at all while something else happens."""
    life.lost(100.1, "its stream ended")
    assert life.refused(100.1, WHY) is None
    assert life.refused(100.1 + REFUSED_SECONDS / 2, WHY) is None
    life.lost(100.2, "it sends nothing")
    assert life.refused(100.3, WHY) is None
    assert life.refused(100.3 + REFUSED_SECONDS, WHY) == f"its stream ended, and {WHY}"
    assert life.refused(200.0, WHY) is None
    assert life.due(200.0) is None


@pytest.mark.parametrize("state", [PeerState.WRONG_ADDRESS, PeerState.UNREACHABLE])
def test_a_peer_whose_address_leads_elsewhere_is_not_suspected(life, state):
    """Nothing is known of it any more."""
    life.elsewhere(101.0, state, "process p9 answers there")
    assert life.due(200.0) is None
    assert life.refused(200.0, WHY) is None
    assert life.refused(201.0, WHY) is None


def test_the_successor_of_a_dead_peer_does_not_make_its_address_wrong(life):
    """A worker that is started again listens at the same port before the group knows that it is another process."""
    assert life.due(103.0) is not None
    life.elsewhere(103.5, PeerState.WRONG_ADDRESS, "process p9 of app 'ledger' answers there")
    assert (life.state, life.error, life.since) == (PeerState.DEAD, "silent for 3.5 s", 103.0)


def test_a_peer_that_said_bye_is_not_suspected(life):
    """Until it is back and falls silent."""
    life.ended(101.0)
    life.refused(101.0, WHY)
    life.refused(102.0, WHY)
    assert (life.due(200.0), life.state) == (None, PeerState.ENDED)
    life.answered(300.0, 0.0)
    assert life.due(303.0) == "silent for 3.0 s"


def test_a_time_in_which_we_stood_still_is_left_out(life):
    """What the peers sent meanwhile is not read yet."""
    life.refused(100.0, WHY)
    life.overslept(90.0)
    assert life.due(190.0) is None
    assert life.refused(190.1, WHY) is None
    assert life.due(192.5) == "silent for 3.0 s"
