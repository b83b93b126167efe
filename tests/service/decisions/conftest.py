"""Fixtures in memory, in virtual time; on a real broker there is no wait for a stale leader."""

from tests.service.recovery.conftest import impatient

__all__ = ["impatient"]
