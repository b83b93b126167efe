"""A restore status as text."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from snapreplay.api import views
from snapreplay.api.cli import asking_commands as asking
from snapreplay.api.cli.client import Json
from snapreplay.api.cli.output import ExitCode
from snapreplay.service.control.status import StandbyStatus
from snapreplay.service.core.assignment import Copies
from snapreplay.service.core.liveness import PeerState
from snapreplay.service.core.phase import Phase
from tests.api.test_owners import app
from tests.support.fake_control import FAILED, LIVE, LOADING, alone


def shown(*statuses: Any) -> Json:
    """Show statuses as the service sends them."""
    sent: Json = json.loads(msgspec.json.encode(views.restore_status(alone(statuses))))
    return sent


def test_summary_counts_phases():
    """How many in which phase, and how far on the whole: a failed partition is not at 0 %, nor the others at 50."""
    assert asking.summary(shown(LIVE, LOADING)) == "1 live, 1 loading; 56.2 %"
    assert asking.summary(shown(LIVE, FAILED)) == "1 live, 1 failed"


def test_a_partition_that_failed_after_it_was_live_shows_nothing_of_its_restore(capsys):
    """Neither a percentage nor a proof, which were of another time."""
    late = msgspec.structs.replace(LIVE, phase=Phase.FAILED, error=FAILED.error)
    asking.print_status(shown(late))
    row = next(line for line in capsys.readouterr().out.splitlines() if " failed " in line)
    assert row.split() == ["0", "failed", *["-"] * 9]


@pytest.mark.parametrize(("status", "phase"), [(LIVE, "live, paused"), (FAILED, "failed, paused")])
def test_a_pause_is_said_beside_the_phase(capsys, status, phase):
    """One that failed has not become live by it."""
    paused = msgspec.structs.replace(status, paused_since=datetime(2026, 3, 1, 4, 5, 6, tzinfo=UTC), paused_reason="")
    asking.print_status(shown(paused))
    said = capsys.readouterr().out
    assert f" {phase} " in said
    assert f"partition {status.partition}: paused since 2026-03-01T04:05:06Z: no reason was given" in said


def test_what_is_waited_for_and_what_is_doubtful_is_said():
    """Below the table."""
    assert LOADING.restore
    waiting = msgspec.structs.replace(LOADING.restore, waiting_for="snapshot 5c1d is not visible")
    partition = shown(msgspec.structs.replace(LOADING, restore=waiting))["partitions"][0]
    assert asking.troubles(partition) == ["partition 1: snapshot 5c1d is not visible"]
    doubtful = msgspec.structs.replace(LIVE, ownership_doubt="it stood still")
    assert "partition 0: it stood still" in asking.troubles(shown(doubtful)["partitions"][0])


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([LIVE], ExitCode.OK),
        ([LIVE, FAILED, LOADING], ExitCode.FINDINGS),
        ([LIVE, LOADING], ExitCode.NOT_YET),
        ([], ExitCode.NOT_YET),
    ],
)
def test_the_exit_code_says_whether_to_ask_again(statuses, code):
    """All live; a person must act; not yet, or nothing is assigned."""
    assert asking.restore_code(shown(*statuses)) is code


def test_the_app_is_shown_with_its_processes(capsys):
    """Whose each partition is, the copies below, and at the end who cannot be asked, since when and why."""
    live = msgspec.structs.replace(LIVE, owner_epoch=7)
    copy = StandbyStatus(0, "warm", 60, digests_compared=1204)
    covered = app(
        [live],
        p2=(PeerState.DEAD, [msgspec.structs.replace(live, partition=4)]),
        p3=(PeerState.NO_ADDRESS, None),
        copies=copy,
    )
    status = json.loads(msgspec.json.encode(views.restore_status(covered)))
    asking.print_status(status)
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split()[:4] for line in lines if line.strip()[:1].isdigit()]
    assert rows == [
        ["0", "host-a", "live", "100.0"],
        *([str(number), "-", "unknown", "-"] for number in (1, 2, 3)),
        ["4", "name-p2", "(dead)", "live"],
        ["5", "name-p3", "(no_address)", "unknown"],
    ]
    assert "standby of partition 0 in name-p2 (dead): warm, batch 60, 0 offsets behind, 1,204 digests equal" in lines
    assert "process name-p2 on host-p2: dead since 2026-11-18T11:06:40Z: why" in lines
    assert lines[-1] == "ledger: 1 live, 5 unknown"
    assert asking.restore_code(status) is ExitCode.NOT_YET


def test_missing_copies_are_counted_with_their_reason(capsys):
    """How many of those wanted are warm, which processes lack some, and whose copies are all on their own rack."""
    few = Copies(2, 1, "the group has 1 other process", 1, "another rack holds none")
    covered = app([LIVE], p2=(PeerState.REACHABLE, [msgspec.structs.replace(LIVE, partition=1)]), given=few)
    held = msgspec.structs.replace(covered.own, standbys=(StandbyStatus(1, "warm", 60), StandbyStatus(2)))
    covered = covered._replace(says=[covered.says[0]._replace(document=held), *covered.says[1:]])
    asking.print_status(json.loads(msgspec.json.encode(views.restore_status(covered))))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4:] == [
        "copies: 1 of 12 warm",
        "partitions of host-a, name-p2: 1 of 2 copies of each: the group has 1 other process",
        "partitions of host-a, name-p2: the copies of 1 are on the rack of their owner: another rack holds none",
        "ledger: 2 live, 4 unknown",
    ]


def test_unequal_proof_shows_both_digests(capsys):
    """A proof that failed names what was computed and what was recorded."""
    status = shown(LIVE)
    status["partitions"][0]["proof"] |= {"computed": "7:a:b", "equal": False}
    asking.print_status(status)
    assert "7:a:b is not 1100:0a:0b" in capsys.readouterr().out


def test_another_mode_than_preferred_says_why():
    """The newest snapshot was used, so none is named."""
    partition = shown(LIVE)["partitions"][0]
    partition |= {"fallback_from": None, "fallback_reason": "x-0 offset 7: crc32"}
    (line,) = asking.troubles(partition)
    assert line == "partition 0: the preferred mode was not usable: x-0 offset 7: crc32"
