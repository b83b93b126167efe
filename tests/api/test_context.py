"""Tests of what a handler is given."""

from __future__ import annotations

import msgspec
from fastapi.testclient import TestClient

from snapreplay.api.app import create_app
from tests.support.fake_control import LIVE, NOW, FakeControl, ago
from tests.support.local_source import Local


def test_handlers_take_the_clock_from_the_application():
    """Ages follow the clock given to create_app, asked anew for every request."""
    control = FakeControl([msgspec.structs.replace(LIVE, updated_at=NOW)])
    ticks = iter([ago(-1), ago(-5)])
    client = TestClient(create_app(Local(control), now=lambda: next(ticks)))
    ages = [client.get("/api/v1/partitions/0").json()["progress_age_seconds"] for _ in range(2)]
    assert ages == [1, 5]
