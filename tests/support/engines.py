"""Tests with the compiled engine and without it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from snapreplay import engine
from snapreplay.app.record import RawRecord
from tests.support.foreign_records import HEAD_BYTES, Foreign, batch

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


def own_records(records: Iterable[RawRecord]) -> list[Any]:
    """Return what the compiled engine reads in a batch of each of these records: records of its own class."""
    assert compiled is not None
    found = []
    for each in records:
        headers = [(name.encode(), data) for name, data in each.headers]
        data = batch([Foreign(each.timestamp, each.key, each.value, headers)])
        place = (HEAD_BYTES, len(data), 1, each.offset, each.timestamp, None, each.topic, each.partition, 0)
        read = compiled.records(data, *place)
        assert read == ([each], len(data))
        found += read[0]
    return found
