"""The border to Kafka."""

import pytest

from snapreplay.service import ports


def test_values_that_cross_the_border_cannot_be_changed():
    """They are shared by tasks and threads."""
    record = ports.LogRecord("t", b"v")
    with pytest.raises(AttributeError):
        record.value = b"w"  # type: ignore[misc]
