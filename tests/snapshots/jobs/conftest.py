"""One Spark session for all tests of the jobs: it takes five seconds to start."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from snapreplay.snapshots.jobs.session import local_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session; every test that uses it is marked `spark`."""
    session = local_session("snapreplay tests", short_lived=True)
    yield session
    session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
