"""Schemas of a registry, fetched before they are needed: a handler's loop must not wait for HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from snapreplay.app.app import App
from snapreplay.app.record import InputRecord
from snapreplay.app.topic import Topic
from snapreplay.errors import RegistryUnavailable
from snapreplay.registry.framing import TopicSchemas
from snapreplay.service.runtime.tasks import cancel_and_wait, within

AGAIN_SECONDS = (1.0, 2.0, 5.0)

_THREADS = ThreadPoolExecutor(4, "snapreplay-registry")
"""Not those of the loop, in which Kafka's addresses are looked up and snapshots are written: a registry that does not
answer would keep all of them busy."""

Wanted = tuple[TopicSchemas, int | None]
"""A schema to read by; None: what writing needs."""


class SchemasOf:
    """The schemas that the inputs and outputs of an app need."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._inputs: dict[str, tuple[TopicSchemas | None, TopicSchemas | None]] = {}
        self._of_outputs = _schemas(app.outputs)
        self._all = (*_schemas(app.inputs), *self._of_outputs)
        self.are_any = bool(self._all)

    @property
    def registries(self) -> tuple[str, ...]:
        """The addresses of the registries that a replay asks, which reads the inputs and encodes the outputs again."""
        return tuple(sorted({each.registry_url for each in self._all}))

    def to_write(self) -> set[Wanted]:
        return {(each, None) for each in self._of_outputs}

    def to_read(self, records: Iterable[InputRecord]) -> set[Wanted]:
        """Return what is not known yet."""
        wanted: set[Wanted] = set()
        for record in records:
            keys, values = self._inputs.get(record.topic) or self._input(record.topic)
            for schemas, data in ((keys, record.key), (values, record.value)):
                if schemas is not None and data is not None and (found := schemas.unknown(data)) is not None:
                    wanted.add((schemas, found))
        return wanted

    def _input(self, name: str) -> tuple[TopicSchemas | None, TopicSchemas | None]:
        topic = self._app.declaration(name)
        found = (topic.key.schemas, topic.value.schemas) if topic is not None else (None, None)
        self._inputs[name] = found
        return found


def _schemas(topics: Iterable[Topic[Any, Any]]) -> list[TopicSchemas]:
    return [each for topic in topics for each in (topic.key.schemas, topic.value.schemas) if each]


async def fetching(wanted: set[Wanted], waiting_for: Callable[[str], None]) -> None:
    """Fetch in a thread, without a time limit. `waiting_for` is called with the reason for a delay; empty: it is over.

    Raises:
        UsageError: nothing can be written as the app declares it.
    """
    failures, left, since_s = 0, list(wanted), time.monotonic()
    while left:
        try:
            # One after the other: a stop waits for the threads, but only for what has begun.
            await asyncio.get_running_loop().run_in_executor(_THREADS, _fetch, *left[-1], since_s)
        except RegistryUnavailable as error:
            waiting_for(str(error))
            await asyncio.sleep(AGAIN_SECONDS[min(failures, len(AGAIN_SECONDS) - 1)])
            failures, since_s = failures + 1, time.monotonic()
        else:
            left.pop()
    if failures:
        waiting_for("")


def _fetch(schemas: TopicSchemas, schema_id: int | None, since_s: float) -> None:
    if schema_id is None:
        schemas.prepare()
    else:
        schemas.fetch(schema_id, since_s)


class SchemaWait:
    """Fetches beside the turns of a LIVE partition, which applies nothing meanwhile."""

    def __init__(self, schemas: SchemasOf, waiting_for: Callable[[str], None]) -> None:
        self._schemas, self._waiting_for = schemas, waiting_for
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._begin(schemas.to_write())

    @property
    def is_over(self) -> bool:
        """Whether nothing is fetched. Raises what ended it, as `fetching`."""
        if self._task is not None and self._task.done():
            task, self._task = self._task, None
            task.result()
        return self._task is None

    def is_needed_for(self, records: Iterable[InputRecord]) -> bool:
        """Say whether these records need a schema that is not known; then it begins to fetch."""
        wanted = self._schemas.to_read(records)
        self._begin(wanted)
        return bool(wanted)

    async def rest(self, seconds: float) -> None:
        """Wait until all is fetched, but no longer than this, or until `wake`."""
        await within(seconds, self._woken)
        self._woken.clear()

    def wake(self) -> None:
        self._woken.set()

    async def close(self) -> None:
        if self._task is not None:
            await cancel_and_wait(self._task)
            self._waiting_for("")

    def _begin(self, wanted: set[Wanted]) -> None:
        if wanted:
            self._task = asyncio.get_running_loop().create_task(fetching(wanted, self._waiting_for))
            self._task.add_done_callback(lambda _: self.wake())
