"""What the errors of the local broker carry."""

from pathlib import Path

from snapreplay.devbroker.errors import LocalBrokerFailed, LocalBrokerUnavailable, ToolsMissing
from snapreplay.errors import UsageError


def test_printed_it_is_the_message_and_then_the_way_out() -> None:
    """Whoever prints the error prints both parts."""
    error = LocalBrokerUnavailable("There is no java.", "apt-get install it")
    assert (error.message, error.hint) == ("There is no java.", "apt-get install it")
    assert str(error) == "There is no java.\napt-get install it"


def test_it_belongs_to_the_error_tree() -> None:
    """Who handles the errors of this package handles it too: nothing of the service was started."""
    assert issubclass(LocalBrokerUnavailable, UsageError)


def test_a_failed_broker_is_an_unavailable_one_with_a_log() -> None:
    """Who catches the one catches the other, and finds the log."""
    error = LocalBrokerFailed("It ended.", "Read it.", Path("broker.log"))
    assert isinstance(error, LocalBrokerUnavailable)
    assert error.log_path == Path("broker.log")


def test_the_command_adds_its_way_to_do_without_it() -> None:
    """A hint names options of the command that was typed."""
    error = ToolsMissing("No java.", "install it")
    assert isinstance(error, LocalBrokerUnavailable)
    assert error.or_else("go there").hint == "install it; or go there"
