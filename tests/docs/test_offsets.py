"""docs/how-it-works.md row by row on a real broker: what a crash loses or repeats in each way of keeping offsets."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from snapreplay.app.app import App
from snapreplay.app.codecs import nullable, raw
from snapreplay.app.topic import Topic
from snapreplay.service.config.settings import Settings
from snapreplay.service.decisions.init import init_app
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import NewTopic
from snapreplay.service.topics.requirements import ensure_topics
from snapreplay.state.map import MapState
from tests.docs.plain_consumer import KILLED, RECORDS, WAYS
from tests.support import reference
from tests.support.deadlines import within
from tests.support.kafka import values_of

HERE = Path(__file__).parent


class Outcome(NamedTuple):
    """The outcome after crash and restart: records without output, with more than one, and the last balance."""

    lost: int
    repeated: int
    balance: int


def _rows() -> dict[str, Outcome]:
    """The table of the document: its last column names the function in plain_consumer.py."""
    text = (HERE.parents[1] / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|.*\| (\d+) \| (\d+) \| (\d+) \| `(\w+)` \|$", text, flags=re.MULTILINE)
    return {way: Outcome(int(lost), int(repeated), int(last)) for lost, repeated, last, way in rows}


ROWS = _rows()


def test_every_way_is_in_the_table() -> None:
    """The document has a row for each way that can be tried, and for snapreplay."""
    assert WAYS
    assert set(ROWS) == WAYS.keys() | {"snapreplay"}


@pytest.fixture(scope="module")
async def plain(
    broker: Any, unique: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[KafkaCluster, str]:
    """Each way has crashed and gone on; the cluster, and the name of all of it."""
    name = unique("offsets")
    cluster = await _loaded(broker.bootstrap_servers, *(f"{name}-{way}" for way in WAYS))
    arguments = ["plain_consumer.py", broker.bootstrap_servers, name]
    assert await _exit_code(arguments, tmp_path_factory.mktemp("plain")) == 0
    return cluster, name


@pytest.mark.whole
@pytest.mark.parametrize("way", sorted(ROWS.keys() - {"snapreplay"}))
async def test_what_a_crash_does(way: str, plain: tuple[KafkaCluster, str]) -> None:
    """This way of keeping offsets loses, repeats and forgets exactly what the document says."""
    cluster, name = plain
    assert await _outcome(cluster, f"{name}-{way}") == ROWS[way]


@pytest.mark.whole
async def test_what_a_crash_does_to_snapreplay(broker: Any, unique: Callable[[str], str], tmp_path: Path) -> None:
    """With snapreplay the same crash loses, repeats and forgets nothing."""
    name = unique("offsets")
    cluster = await _loaded(broker.bootstrap_servers, name)
    await _initialised(broker.bootstrap_servers, name, cluster)
    arguments = ["snapreplay_consumer.py", broker.bootstrap_servers, name]
    assert await _exit_code([*arguments, "dies"], tmp_path) == KILLED
    assert await _exit_code(arguments, tmp_path) == 0
    assert await _outcome(cluster, name) == ROWS["snapreplay"] == Outcome(0, 0, RECORDS)


async def _loaded(bootstrap_servers: str, *names: str) -> KafkaCluster:
    cluster = KafkaCluster(Settings(kafka={"bootstrap.servers": bootstrap_servers}))
    await cluster.create_topics([NewTopic(n, 1) for name in names for n in (name, f"{name}-out")])
    for name in names:
        records = [(str(number), str(number).encode()) for number in range(RECORDS)]
        await asyncio.to_thread(reference.send, bootstrap_servers, name, 1, records)
    return cluster


async def _initialised(bootstrap_servers: str, name: str, cluster: KafkaCluster) -> None:
    settings = Settings(kafka={"bootstrap.servers": bootstrap_servers})
    records = Topic(name, key=nullable(raw), value=raw)
    app = App(name, inputs=[records], state=lambda: MapState(str, int, default=int))
    app.handler(records)(lambda record, state, out: None)
    await ensure_topics(app, settings, cluster)
    await init_app(app, settings, cluster)


async def _exit_code(arguments: list[str], cwd: Path) -> int:
    script, *rest = arguments
    child = await asyncio.create_subprocess_exec(sys.executable, str(HERE / script), *rest, cwd=cwd)
    async with within(60):
        return await child.wait()


async def _outcome(cluster: KafkaCluster, name: str) -> Outcome:
    outputs = [json.loads(value or b"") for value in await values_of(cluster, f"{name}-out")]
    times = Counter(output["offset"] for output in outputs)
    return Outcome(
        lost=sum(times[offset] == 0 for offset in range(RECORDS)),
        repeated=sum(count > 1 for count in times.values()),
        balance=outputs[-1]["balance"],
    )
