"""Exit codes: documented numbers, one for each class of error."""

from pathlib import Path

import pytest
import typer

from snapreplay.api.cli.output import ExitCode, OperationRefused, code_of
from snapreplay.api.cli.root import refused_unless_it_runs
from snapreplay.devbroker.files import LocalBrokerFailed, LocalBrokerUnavailable
from snapreplay.errors import (
    RebuildError,
    RecordError,
    ReleaseError,
    RetryableError,
    SnapreplayError,
    StopError,
    UsageError,
)
from snapreplay.service.core.kafka_errors import ClockRefused, NotAuthenticated, NotAuthorized, RefusedRecord

DOCUMENT = Path(__file__).parents[3] / "docs" / "cli.md"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (RetryableError("x"), 3),
        (NotAuthenticated("x"), 2),
        (RefusedRecord("x"), 2),
        (NotAuthorized("x"), 4),
        (ClockRefused("x"), 4),
        (StopError("x"), 4),
        (RebuildError("x"), 4),
        (ReleaseError("x"), 1),
        (RecordError("x"), 1),
        (SnapreplayError("x"), 1),
        (LocalBrokerUnavailable("x", "y"), 3),
        (LocalBrokerFailed("x", "y", Path("z")), 3),
        (OperationRefused("x", hint="", code=ExitCode.UNREACHABLE), 3),
    ],
)
def test_every_class_has_its_code(error, code):
    """The class of an error alone decides what the command ends with."""
    assert code_of(error) == code


def test_a_cluster_that_does_not_answer_has_a_remedy_in_judging_commands_too(capsys):
    """As in every other command."""
    with pytest.raises(typer.Exit), refused_unless_it_runs():
        raise RetryableError("no broker answers")
    assert "hint: check that the cluster is up, and give its address with --bootstrap-servers" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("command", ["doctor", "audit", "compact"])
def test_a_defect_before_the_judgement_is_no_finding(invoke, monkeypatch, command):
    """Also what breaks while the settings are read ends a judging command with 2."""

    def broken(*_):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("snapreplay.service.config.settings.load_settings", broken)
    arguments = [] if command == "doctor" else ["--app-id", "ledger"]
    result = invoke(command, *arguments)
    assert result.exit_code == ExitCode.REFUSED
    assert "a defect" in result.stderr
