"""The checker finds what it is for: logs written by hand, each with one fault, and one without."""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.checker import Verdict, verify
from tests.checker.faults import CASES, Case
from tests.checker.forged import Forgery
from tests.checker.verdict import Check, Violation

pytestmark = pytest.mark.whole
READ_S = 20.0


class Judged(NamedTuple):
    app_id: str
    verdict: Verdict

    def of(self, number: int) -> list[Violation]:
        """The findings that name this partition."""
        named = re.compile(rf".*{self.app_id}(-increments|-snapshots)?-{number}(-\d+)?")
        return [each for each in self.verdict.violations if named.fullmatch(each.where)]


@pytest.fixture(scope="module")
def judged(broker: Any, unique: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """A partition for each case, all judged at once."""
    app_id = unique("forged")
    forgery = Forgery(broker.bootstrap_servers, app_id, [case.fault for case in CASES.values()])
    forgery.tell()
    journals = tmp_path_factory.mktemp("journals")
    lines = "".join(json.dumps(line) + "\n" for line in forgery.journal)
    (journals / "outcomes.jsonl").write_text(lines + '{"kind": "com')
    return Judged(
        app_id, verify(broker.bootstrap_servers, app_id, outcomes=journals, deadline_seconds=READ_S, healed=False)
    )


@pytest.mark.parametrize("name", CASES)
def test_each_fault_is_found_and_nothing_else(judged: Judged, name: str) -> None:
    """A log with one fault breaks exactly the rules it should, and says where; one without breaks none."""
    number = list(CASES).index(name)
    case: Case = CASES[name]
    found = judged.of(number)
    assert {each.check for each in found} == case.breaks, [*map(str, found)]
    here = re.compile(rf"{judged.app_id}-increments-{number}\b")
    unchecked = [each for each in judged.verdict.unchecked if here.match(each)]
    assert any(case.unchecked in each for each in unchecked) or not case.unchecked


def test_every_rule_is_broken_by_some_case() -> None:
    """No rule of one log is without a log that breaks it; what heals or not is in test_healing.py."""
    broken = {check for case in CASES.values() for check in case.breaks}
    assert broken == set(Check) - {Check.HEALED}


def test_what_was_looked_at_is_counted(judged: Judged) -> None:
    """The verdict says how much it stands on: skipped, foreign, trimmed and aborted records, lean batches, restores."""
    counts = judged.verdict.counts
    for name in (
        "skipped input records",
        "foreign records",
        "outputs trimmed",
        "aborted outputs",
        "aborted records in the increments",
        "batches without changes",
        "batches without fold",
        "copies checked",
        "copies not checked, trimmed",
        "restores checked",
        "reported commits checked",
        "reported commits not checked, trimmed",
        "snapshots checked",
        "torn journal lines",
        "orphaned increments",
        "snapshots deleted with their topic",
    ):
        assert counts[name] > 0, name


def test_an_app_that_is_not_there_is_no_verdict(broker: Any) -> None:
    """A misspelt app id is an error, never a log without violations."""
    with pytest.raises(ValueError, match="no topic unknown-increments"):
        verify(broker.bootstrap_servers, "unknown", deadline_seconds=1)
