"""Findings about permissions: what was tried, what Kafka said, and the ACL that is missing."""

import pytest

from snapreplay.service.core.inspected import WriteProbe
from snapreplay.service.doctor import access_checks as checks
from snapreplay.service.doctor.facts import Refusal
from tests.support.healthy import facts, only


@pytest.mark.parametrize(
    ("what", "acl"),
    [
        ("idempotent writes", "--operation IdempotentWrite --cluster"),
        ("x-increments", "--operation Write --topic x-increments"),
        ("balances-x", "--operation Write --topic balances-x"),
        ("x-doctor", "--operation Write --transactional-id x --resource-pattern-type prefixed"),
    ],
)
def test_what_may_not_be_written(what, acl):
    """Each with the ACL that allows it."""
    finding = only(checks.writes, facts(probe=WriteProbe({what: "AuthorizationFailed"})))
    assert (finding.where, finding.problem) == (
        what,
        "this user may not write: AuthorizationFailed",
    )
    assert acl in finding.remedy


def test_a_group_that_may_not_be_joined():
    """No partition would ever be given to this process."""
    finding = only(checks.identities, facts(refused={"x": "GroupAuthorizationFailedError"}))
    assert finding.where == "group x"
    assert finding.problem == "this user may not join it: GroupAuthorizationFailedError"
    assert "--operation Read --group x" in finding.remedy


def test_transactional_ids_that_may_not_be_used_are_one_finding():
    """However many partitions there are."""
    refused = {f"x-{number}": "TransactionalIdAuthorizationFailed" for number in range(5)}
    finding = only(checks.identities, facts(refused=refused))
    assert finding.where == "x-0, x-1, x-2 and 2 more"
    assert "--transactional-id x --resource-pattern-type prefixed" in finding.remedy
    assert not list(checks.identities(facts()))


def test_what_could_not_be_looked_at():
    """It is a finding too: the rest of the report does not speak of it."""
    refused = (Refusal("describing", "group x", "not allowed", "give it"),)
    finding = only(checks.refusals, facts(refusals=refused))
    assert finding.problem == "describing: not allowed"
    assert finding.remedy == "give it"


def test_without_a_probe_nothing_is_said():
    """Without an app nothing is written."""
    assert not list(checks.writes(facts(probe=None)))
