"""An operator at a real broker, with an app in the working directory."""

import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hints.following import Operator
from tests.service.conftest import attentive, stage
from tests.support import apps
from tests.support.loggers import loggers_put_back
from tests.support.stage import Stage, past

__all__ = ["attentive", "past", "stage"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No leader is stale here; and a command's log ends with the command, whose standard error is closed then."""
    monkeypatch.setattr("snapreplay.service.topics.reading.ASK_AGAIN_SECONDS", 0.1)
    monkeypatch.setattr("snapreplay.service.topics.reading.PATIENCE_SECONDS", 1.0)
    with loggers_put_back():
        yield


@pytest.fixture
def desk(broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory where commands are typed, and the environment that names the cluster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setenv("SNAPREPLAY_KAFKA__BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    return tmp_path


@pytest.fixture
def newcomer(broker: Any, desk: Path, unique: Callable[[str], str]) -> Callable[..., Operator]:
    """Make operators with an app of which nothing exists yet."""

    def make(**tables: Any) -> Operator:
        name = unique("hint")
        here = Stage(broker.bootstrap_servers, apps.ledger(name), **tables)
        return Operator(here, desk, f"apps.ledger({name!r})")

    return make


@pytest.fixture
def operator(past: Any, desk: Path) -> Callable[..., Awaitable[tuple[Any, Operator]]]:
    """The ledger with a past, stopped, and the operator who starts it again."""

    async def make(**tables: Any) -> tuple[Any, Operator]:
        then = await past(**tables)
        return then, Operator(then.here, desk, f"apps.ledger({then.here.app.app_id!r})")

    return make
