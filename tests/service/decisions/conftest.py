"""Nobody waits for a stale leader."""

from tests.service.recovery.conftest import impatient

__all__ = ["impatient"]
