"""The lags as `snapreplay lag` shows them."""

import re

import msgspec
import pytest

from snapreplay.service.clock import time_of, wall_ms
from snapreplay.service.control.input_status import BlockedTopic, InputStatus, OpenTransactionStatus
from tests.support.fake_control import LIVE

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
