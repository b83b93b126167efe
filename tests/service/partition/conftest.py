"""Fixtures in memory, in virtual time."""

import pytest

from tests.support.in_memory import InMemory


@pytest.fixture
def bench() -> InMemory:
    """`await bench.owner()` starts one of a ledger; `@virtual` ends all."""
    return InMemory()
