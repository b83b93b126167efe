"""Apps without a broker: many small states."""

from collections.abc import Iterator

import pytest

from snapreplay.state.composite import Store
from snapreplay.state.mapstore import MapStore
from snapreplay.state.shards import Shards


@pytest.fixture(scope="module", autouse=True)
def few_shards() -> Iterator[None]:
    """Eight shards of a map instead of 1024: a property makes thousands of maps, and each shard is an object."""
    with pytest.MonkeyPatch.context() as patch:
        for function in (Shards.__init__, MapStore.clear, Store.clear):
            patch.setattr(function, "__defaults__", (8,))
        yield
