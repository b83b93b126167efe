"""Fixtures in memory, in virtual time; on a real broker nobody waits for a stale leader."""

from tests.service.recovery.conftest import impatient

__all__ = ["impatient"]
