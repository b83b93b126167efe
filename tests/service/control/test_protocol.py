"""The words that HTTP and the service share."""

from snapreplay.service.config.settings import Settings
from snapreplay.service.control.protocol import Busy, Control, NotOwned, UnknownPartition
from snapreplay.service.service import Service
from snapreplay.service.service_control import ServiceControl
from tests.support import apps


def test_refusals_carry_what_a_problem_document_needs():
    """Numbers and ids, not only a text."""
    assert UnknownPartition(9, 4).partition_count == 4
    assert NotOwned(2, "it is loading").detail == "it is loading"
    assert Busy(1, "op-7").operation_id == "op-7"


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
