"""The service process of a `RealHarness`: python -m snapreplay.testing.real_service

It ends at once when its parent does, because then its standard input ends.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import sys
import threading
from typing import IO, Any

from snapreplay.app.app import App
from snapreplay.app.load import load_app
from snapreplay.errors import SnapreplayError, StopError, UsageError
from snapreplay.service.config.settings import Settings
from snapreplay.service.decisions.init import init_app
from snapreplay.service.kafka.client_log import summarise_client_log
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import TopicPartition
from snapreplay.service.preflight import inspect
from snapreplay.service.recovery.examine import Examiner
from snapreplay.service.runtime.context import Context, Identity
from snapreplay.service.service import Service
from snapreplay.service.topics.reading import decided_bounds, newest, reading
from snapreplay.service.topics.requirements import ensure_topics
from snapreplay.state.cursor import slices_of
from snapreplay.testing.real_harness import (
    Acknowledged,
    Answer,
    Ask,
    Failed,
    Order,
    Request,
    StateRead,
    read_frame,
    write_frame,
)

LOOK_S = 0.01
INSTANCE_ID = "real-harness"


def rename(app: App[Any], prefix: str) -> None:
    """Give the app and its topics other names, in place: its handlers name these very objects. Only for a process that
    runs nothing else."""
    app.app_id = prefix + app.app_id
    for topic in dict.fromkeys((*app.inputs, *app.outputs)):
        topic.put_in_front(prefix)


class RealService:
    """The service, and what is asked of it."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._service: Service[Any] | None = None

    async def answer(self, request: Request) -> Answer:
        try:
            match request.done:
                case Ask.LIVE:
                    await self._become_live(request.deadline_s)
                case Ask.CAUGHT_UP:
                    await self._catch_up(request.deadline_s)
                case Ask.READ:
                    return await self._state(request.partition)
                case Ask.STOPPED:
                    await self._started.stop()
        except SnapreplayError as error:
            return Failed(type(error).__name__, error.message, error.hint)
        return Acknowledged()

    @property
    def _started(self) -> Service[Any]:
        if self._service is None:
            raise UsageError("the service has not become live")
        return self._service

    async def _become_live(self, deadline_s: float) -> None:
        app, settings = load_app(self._order.app), Settings(**self._order.settings)
        rename(app, self._order.prefix)
        cluster = KafkaCluster(settings)
        count = self._order.partition_count
        loop = asyncio.get_running_loop()
        until = loop.time() + deadline_s
        try:
            async with asyncio.timeout_at(until):
                await ensure_topics(app, settings, cluster, create_io_partitions=count)
                await init_app(app, settings, cluster)
        except TimeoutError:
            raise StopError(f"the topics were not made within {deadline_s:g} s") from None
        self._service = Service(app, settings)
        await self._service.start()
        await self._service.wait_live(max(0.0, until - loop.time()))

    async def _catch_up(self, deadline_s: float) -> None:
        service = self._started
        cluster = KafkaCluster(service.settings)
        behind = "the inputs are not known"
        ends: dict[TopicPartition, int] = {}
        try:
            async with asyncio.timeout(deadline_s), reading(cluster) as reader:
                sources = await _inputs(service, cluster)
                while sources:
                    before = dict(ends)
                    for source in sources:
                        behind = f"{source} has an open transaction, or its end is not known"
                        await decided_bounds(cluster, source)  # what a commit was answered for may lack its marker
                        for record in await newest(reader, source, 1):
                            ends[source] = record.offset + 1
                    if ends == before:
                        return
                    while behind := _behind(service, ends):  # noqa: ASYNC110 - statuses have no events here
                        await asyncio.sleep(LOOK_S)  # between two looks
                    # What was read may have led to records in internal topics.
                    sources = [each for each in sources if each.topic in service.app.internal_names]
        except TimeoutError:
            raise StopError(f"not caught up after {deadline_s} s: {behind}") from None

    async def _state(self, partition: int) -> StateRead:
        """Load the state as a recovery would find it now, proven by the digest; nobody is fenced."""
        app, settings = self._started.app, self._started.settings
        cluster = KafkaCluster(settings)
        view = await inspect(app, settings, cluster)
        if not 0 <= partition < view.partition_count:
            raise UsageError(f"partition {partition} does not exist: there are {view.partition_count}")
        identity = Identity.of_this_process(INSTANCE_ID)
        context = Context(app, settings, cluster, view, identity, partition, asyncio.Semaphore(1))
        await decided_bounds(cluster, context.increments)
        examiner = Examiner(context, app.new_store())
        try:
            error = await examiner.examine()
            if error is not None:
                raise error
            return StateRead(slices_of(examiner.store), examiner.store.stream_time_ms)
        finally:
            await examiner.close()


async def _inputs(service: Service[Any], cluster: KafkaCluster) -> list[TopicPartition]:
    view = await inspect(service.app, service.settings, cluster)
    topics = (*service.app.input_names, *view.matched)
    facts = await cluster.topics(topics)
    return [TopicPartition(topic, number) for topic in topics for number in range(facts[topic].partition_count)]


def _behind(service: Service[Any], ends: dict[TopicPartition, int]) -> str:
    """Return what is not committed yet; empty if nothing. Raises StopError: a partition FAILED."""
    statuses = service.restore_status()
    for status in statuses:
        if status.phase == "failed" and status.error is not None:
            error = status.error
            raise StopError(f"partition {status.partition} FAILED: {error.kind}: {error.message}", hint=error.hint)
    positions = {
        TopicPartition(each.topic, status.partition): each.position
        for status in statuses
        if status.phase == "live"
        for each in status.inputs
    }
    late = [
        f"{source} is at {positions.get(source, 'no position')} of {end}"
        for source, end in ends.items()
        if positions.get(source, -1) < end
    ]
    return ", ".join(late)


async def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer one request after the other, until a stop. A handler that waits lets none be answered: then the log gets
    the stack of each thread once the deadline has passed, and the parent shows it."""
    waiting: asyncio.Queue[Request] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    order: Order = read_frame(requests, Order)

    def listen() -> None:
        while (request := read_frame(requests, Request)) is not None:
            faulthandler.dump_traceback_later(request.deadline_s)
            loop.call_soon_threadsafe(waiting.put_nowait, request)
        os._exit(1)  # the parent is gone

    threading.Thread(target=listen, daemon=True).start()
    service = RealService(order)
    while True:
        request = await waiting.get()
        answer = await service.answer(request)
        faulthandler.cancel_dump_traceback_later()
        write_frame(answers, answer)
        if request.done is Ask.STOPPED:
            return


def main() -> None:
    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # a handler may print
    summarise_client_log()
    asyncio.run(serve(sys.stdin.buffer, answers))
    os._exit(0)  # a thread still reads the standard input


if __name__ == "__main__":
    main()
