"""The verdict as a value."""

from snapreplay.snapshots.proof.report import AuditReport, Violation


def test_findings_decide_the_exit_code() -> None:
    """0 without any, 1 with one; notes never count."""
    fine = AuditReport("app", 1, {}, [], {"foreign_records": 7}, 0.1)
    assert fine.exit_code == 0
    assert AuditReport("app", 1, {}, [Violation("c", "t", 0, 1, "d")], {}, 0.1).exit_code == 1


def test_findings_sort_by_check_and_place() -> None:
    """So that two audits of one log read alike."""
    late, early = Violation("b", "t", 0, 10, ""), Violation("b", "t", 0, 9, "")
    first = Violation("a", "t", 5, 99, "")
    assert sorted([late, early, first]) == [first, early, late]
