"""A restore status as text."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from snapreplay.api import views
from snapreplay.api.cli import restore_view
from snapreplay.api.cli.exits import ExitCode
from snapreplay.service.core.phase import Phase
from tests.support.fake_control import ASSIGNED, FACTS, FAILED, LIVE, LOADING

Json = dict[str, Any]


def shown(*statuses: Any) -> Json:
    """Show statuses as the service sends them."""
    sent: Json = json.loads(msgspec.json.encode(views.restore_status(FACTS, statuses)))
    return sent


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (LIVE, "partition 0 live"),
        (LOADING, "partition 1 loading 1,024 / 4,096 bytes 12 % 512/s attempt 2"),
        (FAILED, "partition 2 failed RecordError: handler failed"),
        (ASSIGNED, "partition 3 assigned"),
    ],
)
def test_line_says_what_matters_in_its_phase(status, line):
    """Amounts while they move, attempts when there were several, errors when there are some."""
    assert restore_view.line(shown(status)["partitions"][0]) == line


def test_summary_counts_phases():
    """How many in which phase, and how far on the whole: a failed partition is not at 0 %, nor the others at 50."""
    assert restore_view.summary(shown(LIVE, LOADING)) == "1 live, 1 loading; 56.2 %"
    assert restore_view.summary(shown(LIVE, FAILED)) == "1 live, 1 failed"


def test_a_partition_that_failed_after_it_was_live_shows_nothing_of_its_restore(capsys):
    """Neither a percentage nor a proof, which were of another time."""
    late = msgspec.structs.replace(LIVE, phase=Phase.FAILED, error=FAILED.error)
    restore_view.print_status(shown(late))
    row = next(line for line in capsys.readouterr().out.splitlines() if " failed " in line)
    assert row.split() == ["0", "failed", *["-"] * 9]


def test_what_is_waited_for_and_what_is_doubtful_is_said():
    """Below the table, and in the line of a pipe."""
    assert LOADING.restore
    waiting = msgspec.structs.replace(LOADING.restore, waiting_for="snapshot 5c1d is not visible")
    partition = shown(msgspec.structs.replace(LOADING, restore=waiting))["partitions"][0]
    assert restore_view.troubles(partition) == ["partition 1: snapshot 5c1d is not visible"]
    assert "512/s snapshot 5c1d is not visible" in restore_view.line(partition)
    doubtful = msgspec.structs.replace(LIVE, ownership_doubt="it stood still")
    assert "partition 0: it stood still" in restore_view.troubles(shown(doubtful)["partitions"][0])


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
    assert restore_view.exit_code(shown(*statuses)) is code


def test_a_partition_that_only_waits_is_shown_and_no_trouble(capsys):
    """Nulls are dashes, not errors."""
    assert restore_view.troubles(shown(ASSIGNED)["partitions"][0]) == []
    restore_view.print_status(shown(ASSIGNED))
    assert "assigned" in capsys.readouterr().out


def test_unequal_proof_shows_both_digests(capsys):
    """A proof that failed names what was computed and what was recorded."""
    status = shown(LIVE)
    status["partitions"][0]["proof"] |= {"computed": "7:a:b", "equal": False}
    restore_view.print_status(status)
    assert "7:a:b is not 1100:0a:0b" in capsys.readouterr().out


def test_another_mode_than_preferred_says_why():
    """The newest snapshot was used, so none is named."""
    partition = shown(LIVE)["partitions"][0]
    partition |= {"fallback_from": None, "fallback_reason": "x-0 offset 7: crc32"}
    (line,) = restore_view.troubles(partition)
    assert line == "partition 0: the preferred mode was not usable: x-0 offset 7: crc32"
