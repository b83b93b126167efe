"""The lags as `snapreplay lag` shows them, and the plans as `snapreplay plan` does."""

import json
import re

import msgspec
import pytest

from snapreplay.api import views
from snapreplay.api.cli.asking_commands import lags_code, plans_code, print_lags, print_plans
from snapreplay.api.cli.output import ExitCode
from snapreplay.api.fleet_views import held
from snapreplay.service.clock import time_of, wall_ms
from snapreplay.service.control.restore_plan import Rates, RestorePlan
from snapreplay.service.control.status import BlockedTopic, InputStatus, OpenTransactionStatus
from snapreplay.service.core.liveness import PeerState
from tests.api.test_owners import app
from tests.support.fake_control import LIVE, NOW

KNOWN = OpenTransactionStatus(77, 0, 500, "payments-writer", time_of(wall_ms() - 7_500_000), 900.0)
HANGING = OpenTransactionStatus(78, 0, 500, last_record_at=time_of(wall_ms() - 7_500_000))


def with_inputs(control, *inputs, held_by=None, blocked=False):
    told = (BlockedTopic("payments", 500, 40, held_by),) if blocked else ()
    control.statuses = {0: msgspec.structs.replace(LIVE, inputs=inputs, blocked_by_open_transaction=told)}


def test_both_lags_of_each_input_are_shown(invoke, url, control):
    """One row per input; nothing is held back, so the exit code is 0."""
    with_inputs(control, InputStatus("payments", 500, 1520, 1560), InputStatus("rates", 7, 9, 9))
    result = invoke("lag", "--url", url)
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines() if " live " in line]
    assert rows == [
        ["0", "live", "payments", "500", "1,520", "1,020", "1,560", "1,060"],
        ["0", "live", "rates", "7", "9", "2", "9", "2"],
    ]


@pytest.mark.parametrize(
    ("held_by", "who"),
    [
        (KNOWN, r"producer id 77, transactional id 'payments-writer', open for [78],\d+ s of at most 900 s"),
        (HANGING, r"producer id 78, which no coordinator names \(it hangs, or .*\); its last record is [78],\d+ s old"),
        (None, "40 offsets wait behind an open transaction"),
    ],
)
def test_what_holds_an_input_back_is_named(invoke, url, control, held_by, who):
    """The transaction, its owner and its age, as far as known. The exit code is 1."""
    with_inputs(control, InputStatus("payments", 500, 500, 540), held_by=held_by, blocked=True)
    result = invoke("lag", "--url", url)
    assert result.exit_code == 1
    assert "partition 0: payments is held back at offset 500: 40 offsets wait behind" in result.stdout
    assert re.search(who, result.stdout)


def test_a_lag_that_is_not_known_yet_is_no_lag_of_zero(invoke, url):
    """One partition has read nothing yet: the exit code is 5, and its row has no numbers."""
    result = invoke("lag", "--url", url)
    assert result.exit_code == 5
    assert ["1", "loading", *"------"] in [line.split() for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("changes", "recorded changes need no schema registry; a replay would need http://registry"),
        ("replay", "a replay waits until the schema registry answers: http://registry"),
    ],
)
def test_the_plan_names_the_registry_that_a_replay_needs(capsys, mode, said):
    plan = RestorePlan(mode, None, Rates(), NOW, ("http://registry",))
    (shown, *_) = views.restore_plans(app([msgspec.structs.replace(LIVE, restore_plan=plan, recoverable=True)])).items
    print_plans(json.loads(msgspec.json.encode(views.RestorePlans((shown,)))))
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("state", [PeerState.DEAD, PeerState.UNREACHABLE, PeerState.REACHABLE])
def test_what_a_dead_process_said_last_is_not_told_as_known(capsys, state):
    """Its lag and its plan are of then: both commands say so, and end with 5."""
    plan = RestorePlan("changes", None, Rates(), NOW)
    theirs = msgspec.structs.replace(LIVE, partition=1, restore_plan=plan, recoverable=True)
    covered = app([], p2=(state, [theirs]))
    (mine,) = [each for each in held(covered) if each.partition == 1]
    plans = [each for each in views.restore_plans(covered).items if each.partition == 1]
    lags = json.loads(msgspec.json.encode(views.Partitions((views.partition(mine, NOW),))))
    plans = json.loads(msgspec.json.encode(views.RestorePlans(tuple(plans))))
    print_lags(lags)
    print_plans(plans)
    said = capsys.readouterr().out
    is_known = state is PeerState.REACHABLE
    code = ExitCode.OK if is_known else ExitCode.NOT_YET
    assert (lags_code(lags), plans_code(plans)) == (code, code)
    assert said.count(f"partition 1 (last known: its process p2 is {state})") == (0 if is_known else 2)
    assert ("was live" in said) is not is_known
