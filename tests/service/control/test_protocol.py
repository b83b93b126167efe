"""The words that HTTP and the service share."""

from snapreplay.service.config.settings import Settings
from snapreplay.service.control.protocol import Control
from snapreplay.service.service import Service
from snapreplay.service.service_control import ServiceControl
from tests.support import apps


def test_the_service_answers_every_question_before_it_has_started():
    """HTTP is up before the cluster is reached, so nothing may be missing then."""
    control: Control = Service(apps.ledger("idle"), Settings()).control
    assert isinstance(control, ServiceControl)
    assert control.facts().partition_count is None
    empty = (control.partitions(), control.snapshots(), control.operations())
    assert [list(each) for each in empty] == [[], [], []]
    assert control.operation("no such id") is None
    assert [check.name for check in control.ready_checks() if not check.ok] == ["cluster", "member"]
    assert all(check.ok for check in control.live_checks())
