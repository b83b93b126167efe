"""The border to Kafka: what its errors make the service do."""

import pytest

from snapreplay.service import ports
from snapreplay.snapshots.errors import Reaction


@pytest.mark.parametrize(
    ("error", "reaction"),
    [
        (ports.Unreachable, Reaction.RETRY),
        (ports.ReadStalled, Reaction.RETRY),
        (ports.OffsetTrimmed, Reaction.RETRY),
        (ports.OffsetBeyondEnd, Reaction.RETRY),
        (ports.CommitInDoubt, Reaction.RETRY),
        (ports.RefusedRecord, Reaction.RETRY),
        (ports.Fenced, Reaction.RELEASE),
    ],
)
def test_the_type_of_an_error_is_the_reaction(error, reaction):
    """Nobody reads a message to decide, and none of these stops a partition by itself."""
    assert error.reaction is reaction


def test_values_that_cross_the_border_cannot_be_changed():
    """They are shared by tasks and threads."""
    record = ports.LogRecord("t", b"v")
    with pytest.raises(AttributeError):
        record.value = b"w"  # type: ignore[misc]
