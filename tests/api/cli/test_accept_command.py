"""accept on the command line: what is refused before Kafka, and what is printed. The rest: tests/attacks, B3."""

import pytest

from snapreplay.api.cli import accept_command
from snapreplay.service.decisions.accept import Acceptance
from snapreplay.service.publish.state import Begun
from tests.support.entries import increment

GIVEN = ["--partition", "0", "--finding", "input-gap-0a1b2c3d"]


@pytest.mark.parametrize("missing", ["--partition", "--finding", "--reason"])
def test_nothing_is_assumed(invoke, ledger, missing):
    """Partition, finding and reason have no defaults: exit code 2 and the option's name."""
    given = {"--partition": "0", "--finding": "x", "--reason": "y"}
    del given[missing]
    result = invoke("accept", ledger, *(word for pair in given.items() for word in pair))
    assert result.exit_code == 2
    assert missing in result.stderr


def test_an_empty_reason_is_none(invoke, ledger):
    """Exit code 2, before any call to Kafka."""
    result = invoke("accept", ledger, *GIVEN, "--reason", " ")
    assert result.exit_code == 2
    assert "no reason was given" in result.stderr


def acceptance():
    nothing: dict[str, object] = dict.fromkeys(("context", "store", "ground"))
    return Acceptance(
        3,
        GIVEN[-1],
        "InputTrimmed: gone",
        ("payments: goes on at offset 130", "a full snapshot is written"),
        {"reason": "known outage", "by": "ada@host-a"},
        **nothing,  # type: ignore[arg-type] # printing needs none of them
        end_offset=0,
    )


def test_the_plan_is_printed_before_anything_is_written(capsys):
    """What is the matter, what will be done, by whom and why."""
    accept_command._print_plan(acceptance())
    assert capsys.readouterr().out.splitlines() == [
        "partition 3: input-gap-0a1b2c3d",
        "  InputTrimmed: gone",
        "  - payments: goes on at offset 130",
        "  - a full snapshot is written",
        "  by ada@host-a: known outage",
    ]


def test_the_outcome_says_where_the_decision_stands():
    """And what is still to be done: the process that failed does not look again by itself. A dry run has no offset."""
    begun = Begun(increment(9), 27, "5eed")
    said = accept_command._outcome(acceptance(), begun)
    assert "increment 9 at offset 27, snapshot 5eed" in said
    assert said.endswith("Now run `snapreplay retry --partition 3`")
    assert accept_command._outcome(acceptance(), None) == "dry run: nothing was written"
    document = accept_command._document(acceptance(), begun)
    assert (document["finding"], document["plan"]) == (GIVEN[-1], list(acceptance().plan))
    assert (document["dry_run"], document["batch"], document["offset"]) == (False, 9, 27)
    assert accept_command._document(acceptance(), None)["offset"] is None
