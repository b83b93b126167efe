"""The ground of scenarios: on the session's broker, or on three whose network can be cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.ground import Ground
from tests.support.child import family
from tests.support.three_brokers import ThreeBrokers, three_brokers

SESSION_MS = 10_000
"""Of a broker: after this long the others take over what it led."""


@pytest.fixture
def ground(broker: Any, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[Ground]:
    """Provide the ground on the session's broker."""
    with family(broker.bootstrap_servers, tmp_path) as children:
        yield Ground(broker.bootstrap_servers, children, tmp_path, unique)


@pytest.fixture(scope="module")
def three() -> Iterator[ThreeBrokers]:
    """Three brokers for a whole file: starting them costs seconds. Each test ends with whole links and all of them."""
    with three_brokers({"broker.session.timeout.ms": str(SESSION_MS)}) as brokers:
        yield brokers


@pytest.fixture
def wide(three: ThreeBrokers, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[Ground]:
    """Provide the ground on the three brokers."""
    with family(three.bootstrap_servers, tmp_path) as children:
        try:
            yield Ground(three.bootstrap_servers, children, tmp_path, unique, three)
        finally:
            three.heal()
