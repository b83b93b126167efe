"""What Kafka's errors make the service do."""

import pytest

from snapreplay.errors import Reaction
from snapreplay.service.core import kafka_errors as errors


@pytest.mark.parametrize(
    ("error", "reaction"),
    [
        (errors.Unreachable, Reaction.RETRY),
        (errors.ReadStalled, Reaction.RETRY),
        (errors.OffsetTrimmed, Reaction.RETRY),
        (errors.OffsetBeyondEnd, Reaction.RETRY),
        (errors.CommitInDoubt, Reaction.RETRY),
        (errors.RefusedRecord, Reaction.RETRY),
        (errors.Fenced, Reaction.RELEASE),
    ],
)
def test_the_type_of_an_error_is_the_reaction(error, reaction):
    """Nobody reads a message to decide, and none of these stops a partition by itself."""
    assert error.reaction is reaction
