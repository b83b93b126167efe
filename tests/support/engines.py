"""Tests with the compiled engine and without it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from snapreplay import engine

compiled, why_not = engine.chosen("auto")

needs_engine = pytest.mark.skipif(compiled is None, reason=f"no compiled engine: {why_not}")
"""A test that compares both."""


@contextmanager
def pure() -> Iterator[None]:
    """Let Python do the work in the block."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engine, "compiled", None)
        yield


@pytest.fixture(scope="module")
def with_engine() -> Iterator[None]:
    """Let the compiled engine work, also with SNAPREPLAY_ENGINE=pure. To be imported by a file with `needs_engine`."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engine, "compiled", compiled)
        yield


@pytest.fixture(scope="module", params=["pure", pytest.param("compiled", marks=needs_engine)])
def each_engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the tests of a file by Python, and by the compiled engine. To be imported by the file that asks for it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engine, "compiled", compiled if request.param == "compiled" else None)
        yield request.param
