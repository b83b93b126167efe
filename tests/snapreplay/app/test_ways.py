"""Ways out that several hints name."""

from snapreplay.app import ways
from tests.support import apps


def test_the_app_is_named_as_a_command_takes_it() -> None:
    """One that was not loaded by name has a placeholder in its place, the same one everywhere."""
    assert ways.app_name(apps.ledger("ways")) == ways.MODULE
    assert ways.MODULE in ways.new_app()


def test_a_new_app_has_its_topics_before_its_genesis() -> None:
    """The commands stand in the order in which they work, the options behind the last one."""
    way = ways.new_app(" --state-of ledger")
    assert way.index("topics ensure") < way.index("init")
    assert way.endswith("--state-of ledger`")
