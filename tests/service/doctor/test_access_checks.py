"""Findings about permissions: what was tried, what Kafka said, and the ACL that is missing."""

import pytest

from snapreplay.service.core.inspected import WriteProbe
from snapreplay.service.doctor import cluster_checks as checks
from snapreplay.service.doctor.facts import Refusal
from tests.support.healthy import facts, only

BY_PREFIX = "--transactional-id x --resource-pattern-type prefixed"


@pytest.mark.parametrize(
    ("what", "acl"),
    [
        ("idempotent writes", "IdempotentWrite --cluster"),
        ("x-increments", "Write --topic x-increments"),
        ("balances-x", "Write --topic balances-x"),
        ("x-doctor", f"Write {BY_PREFIX}"),
    ],
)
def test_what_may_not_be_written(what, acl):
    """Each with the ACL that allows it; without an app nothing is tried."""
    finding = only(checks.writes, facts(probe=WriteProbe({what: "AuthorizationFailed"})))
    assert (finding.where, finding.problem) == (
        what,
        "this user may not write: AuthorizationFailed",
    )
    assert f"--operation {acl}" in finding.remedy
    assert not list(checks.writes(facts(probe=None)))


@pytest.mark.parametrize(
    ("refused", "where", "acl"),
    [
        ({"x": "Denied"}, "group x", "Read --group x"),
        ({f"x-{number}": "Denied" for number in range(5)}, "x-0, x-1, x-2 and 2 more", BY_PREFIX),
    ],
)
def test_what_no_partition_could_be_had_with(refused, where, acl):
    """A group that may not be joined; transactional ids, which are one finding however many partitions there are."""
    finding = only(checks.identities, facts(refused=refused))
    assert (finding.where, "Denied" in finding.problem) == (where, True)
    assert acl in finding.remedy


def test_what_could_not_be_looked_at():
    """It is a finding too: the rest of the report does not speak of it."""
    refused = (Refusal("describing", "group x", "not allowed", "give it"),)
    finding = only(checks.refusals, facts(refusals=refused))
    assert (finding.problem, finding.remedy) == ("describing: not allowed", "give it")
