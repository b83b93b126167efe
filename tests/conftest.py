"""What all tests share: one real broker per session, and names that no other test uses."""

import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from snapreplay.service.localbroker.broker import LocalBroker

# A cluster of one's own to run the tests against instead of the local broker.
BOOTSTRAP_VARIABLE = "SNAPREPLAY_TEST_BOOTSTRAP_SERVERS"

# Tests in parallel are told a terminal's width; what they look at goes into a pipe, which has none.
os.environ.pop("COLUMNS", None)


@dataclass(frozen=True, slots=True)
class SharedBroker:
    """The session's broker. It has no kill(): a test that kills starts a LocalBroker of its own."""

    bootstrap_servers: str


@pytest.fixture(scope="session")
def broker() -> Iterator[SharedBroker]:
    """A broker for the whole session; every test that uses it is marked `kafka`."""
    given = os.environ.get(BOOTSTRAP_VARIABLE)
    if given:
        yield SharedBroker(given)
        return
    with LocalBroker() as local:
        yield SharedBroker(local.bootstrap_servers)


@pytest.fixture(scope="session")
def unique() -> Callable[[str], str]:
    """A function that turns a name into one for topics, groups and apps that no other test has."""
    return lambda name: f"{name}-{uuid.uuid4().hex[:8]}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "broker" in getattr(item, "fixturenames", ()):
            item.add_marker("kafka")
