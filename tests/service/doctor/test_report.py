"""All checks together."""

import inspect

from snapreplay.service.doctor import (
    cluster_checks,
    state_checks,
    topic_checks,
    transaction_checks,
)
from snapreplay.service.doctor.report import CHECKS, report_of
from tests.support.healthy import facts, without_topic


def test_nothing_is_the_matter_with_the_healthy_cluster():
    """No findings, and what was looked at is counted."""
    report = report_of(facts(), 1.25)
    assert report.findings == []
    assert report.app_id == "x"
    counted = {"brokers": 3, "topics": 5, "partitions": 10, "states": 2}
    assert report.looked_at == {"checks": len(CHECKS), **counted}


def test_findings_are_those_of_all_checks():
    """In the order of the checks."""
    assert [f.check for f in report_of(without_topic("balances-x"), 0).findings] == ["topics"]


def test_no_check_is_forgotten():
    """Every public function of the check modules is in the list."""
    modules = (cluster_checks, state_checks, topic_checks, transaction_checks)
    public = {
        function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
    assert public == set(CHECKS)
