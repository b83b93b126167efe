"""A table that does not fit into the memory of its process: the partition says so, and loses nothing."""

import asyncio
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snapreplay import App, MapState, Stores, Topic, nullable
from snapreplay.app.codecs import utf8
from snapreplay.engine import VARIABLE
from tests.support.child import Family
from tests.support.stage import Stage

pytestmark = pytest.mark.whole

PROGRAM = """
from tests.service.test_table_beyond_memory import catalogue

app = catalogue({app_id!r})
"""
SPARE_BYTES = 96 * 2**20
VALUE = "x" * 250_000
VALUES = 1000


def catalogue(app_id: str) -> App[Any]:
    """Keeps a table. A record of the other input leaves the process only a little more memory than it has."""
    facts, limits = Topic(f"facts-{app_id}", value=nullable(utf8)), Topic(f"limits-{app_id}", value=utf8)
    app: App[Any] = App(
        app_id, inputs=[limits, facts], state=lambda: Stores(facts=MapState(str, str), limits=MapState(str, int))
    )
    app.table(facts, store="facts")

    @app.handler(limits)
    def on_limit(record: Any, state: Any, out: Any) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + SPARE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        state.limits[record.key] = limit

    return app


async def test_it_is_named_and_a_process_with_more_memory_continues(
    broker: Any, unique: Callable[[str], str], children: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the compiled engine, which aborts the process where Python raises."""
    monkeypatch.setenv(VARIABLE, "pure")
    app_id, program = unique("catalogue"), tmp_path / "catalogue.py"
    program.write_text(PROGRAM.format(app_id=app_id))
    here = await Stage(broker.bootstrap_servers, catalogue(app_id), 1).prepare()
    small = children.start("", app_id, program=program)
    await asyncio.to_thread(small.wait_live)
    await here.send([("k", "now")], here.app.inputs[0].name)
    await asyncio.to_thread(small.until, lambda: small.processed() == 1, "the limit")
    await here.send([(f"k{number}", VALUE) for number in range(VALUES)], here.app.inputs[1].name)

    def error() -> Any:
        return small.partitions()[0]["error"]

    await asyncio.to_thread(small.until, error, "an error")
    assert small.partitions()[0]["phase"] == "failed"
    assert error()["kind"] == "MemoryError"
    assert "raise its memory limit" in error()["hint"]
    small.kill()
    large = children.start("", app_id, program=program)  # the record that sets the limit is processed
    await asyncio.to_thread(large.wait_live)
    await asyncio.to_thread(
        large.until, lambda: sum(large.metric("snapreplay_state_entries")) == VALUES + 1, "all of it"
    )
    assert await asyncio.to_thread(large.terminate) == 0
