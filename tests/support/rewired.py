"""An app whose inputs change from version to version, and what its state is then, by hand."""

from typing import Any

import pytest

from snapreplay import App, MapState, Topic
from snapreplay.service.core.refusals import WrongLog
from snapreplay.service.decisions.inputs import Wish, carry_out, propose
from snapreplay.service.ports import NewTopic
from tests.support.stage import Stage, processed


def sums(name: str, *inputs: str, **options: Any) -> App[Any]:
    """One sum per key over these inputs, in the order of their records: each record weighs more than those before."""
    topics = [Topic(f"{each}-{name}") for each in inputs]
    app: App[Any] = App(
        name, inputs=topics, outputs=[Topic(f"sums-{name}")], state=lambda: MapState(str, int), **options
    )
    (out_topic,) = app.outputs

    def on_record(record: Any, state: Any, out: Any) -> None:
        state[record.key] = (state.get(record.key, 0) * 31 + record.value) % 1_000_003
        out.send(out_topic, key=record.key, value={"id": record.id, "sum": state[record.key]})

    for topic in topics:
        app.handler(topic)(on_record)
    return app


def folded(*parts: tuple[int, int]) -> dict[str, int]:
    """The state after five keys were fed with each of these values: by hand."""
    state = {f"k{key}": 0 for key in range(5)}
    for first, count in parts:
        for value in range(first, first + count):
            state = {key: (total * 31 + value) % 1_000_003 for key, total in state.items()}
    return state


class Story:
    """One name and its versions; each with other inputs."""

    def __init__(self, servers: str, name: str, partitions: int = 1, **tables: Any) -> None:
        self.servers, self.name, self.partitions, self.tables = servers, name, partitions, tables

    def of(self, *inputs: str, **options: Any) -> Stage:
        return Stage(self.servers, sums(self.name, *inputs, **options), self.partitions, **self.tables)

    async def feed(self, topic: str, first: int, count: int) -> None:
        stage = self.of("any")
        for value in range(first, first + count):
            await stage.send([(f"k{key}", value) for key in range(5)], f"{topic}-{self.name}")

    async def created(self, *topics: str) -> None:
        await self.of("any").cluster.create_topics([NewTopic(f"{each}-{self.name}", 1) for each in topics])

    async def change(self, stage: Stage, *args: Any, **asked: Any) -> list[Any]:
        proposed = await propose(stage.app, stage.settings(), stage.cluster, Wish(*args, **asked))
        return [await carry_out(each) for each in proposed if each.change]

    async def refused(self, stage: Stage) -> None:
        """A process of this version does not join the group, and says which command changes that."""
        async with stage.started() as service:
            with pytest.raises(WrongLog, match="inputs recorded in") as refused:
                await service.wait_started()
        assert "`snapreplay inputs" in (refused.value.hint or "")

    async def processed(self, stage: Stage, topic: str) -> dict[str, int]:
        """Process all of a topic; return the states of all partitions."""
        topic = f"{topic}-{self.name}"
        ends = {number: len(records) for number, records in enumerate(await stage.read(topic))}
        async with stage.running() as service:
            await processed(service, ends, topic)
            return {key: value for view in service.views().values() for key, value in view.items()}

    async def run(self, stage: Stage, ends: dict[str, int]) -> dict[str, int]:
        """Process up to these ends; return the state."""
        async with stage.running() as service:
            for topic, end in ends.items():
                await processed(service, {0: end}, f"{topic}-{self.name}")
            return dict(service.view(0).items())
