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
from snapreplay.errors import SnapreplayError, StopError, UnknownPartition
from snapreplay.service.config.settings import Settings
from snapreplay.service.decisions.init import init_app
from snapreplay.service.kafka.client_log import summarise_client_log
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import Cluster, TopicPartition
from snapreplay.service.preflight import inspect
from snapreplay.service.recovery.examine import Examiner
from snapreplay.service.runtime.broadcasting import broadcasting
from snapreplay.service.runtime.context import contexts_of
from snapreplay.service.service import Service
from snapreplay.service.topics.increments import last_increment
from snapreplay.service.topics.reading import decided_bounds, newest, reading
from snapreplay.service.topics.requirements import ensure_topics
from snapreplay.state.cursor import slices_of
from snapreplay.testing.service_process import (
    Answer,
    Answered,
    Ask,
    Ends,
    Failed,
    Order,
    Request,
    order_in,
    read_frame,
    request_in,
    write_frame,
)

INSTANCE_ID = "real-harness"


def rename(app: App[Any], prefix: str) -> None:
    """Give the app and its topics other names, in place: its handlers name these very objects. Only for a process that
    runs nothing else."""
    app.app_id = prefix + app.app_id
    for topic in dict.fromkeys((*app.inputs, *app.outputs)):
        topic.put_in_front(prefix)


class RealService:
    """The service, and what is asked of it. It starts at once."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._starting = asyncio.create_task(self._start())

    async def answer(self, request: Request) -> Answer:
        try:
            match request.done:
                case Ask.LIVE:
                    return await self._live(request)
                case Ask.CAUGHT_UP:
                    return Answered(behind=await self._behind(request))
                case Ask.ENDS:
                    return Answered(ends=await self._ends(request))
                case Ask.READ:
                    return await self._state(request)
                case Ask.STOPPED:
                    await (await self._started(request)).stop()
                    return Answered()
        except SnapreplayError as error:
            return Failed(type(error).__name__, error.message, error.hint)

    async def _started(self, request: Request) -> Service[Any]:
        try:
            async with asyncio.timeout(request.deadline_s):
                return await asyncio.shield(self._starting)
        except TimeoutError:
            raise StopError(f"the topics were not created within {request.deadline_s:g} s") from None

    async def _start(self) -> Service[Any]:
        app, settings = load_app(self._order.app), Settings(**self._order.settings)
        rename(app, self._order.prefix)
        cluster = KafkaCluster(settings)
        await ensure_topics(app, settings, cluster, create_io_partitions=self._order.partition_count)
        await init_app(app, settings, cluster)
        service = Service(app, settings)
        await service.start()
        return service

    async def _live(self, request: Request) -> Answered:
        loop = asyncio.get_running_loop()
        until = loop.time() + request.deadline_s
        service = await self._started(request)
        await service.wait_live(max(0.0, until - loop.time()))
        return Answered(live=[each.partition for each in service.restore_status() if each.phase == "live"])

    async def _ends(self, request: Request) -> Ends:
        """Return where the inputs end now, behind the transactions that are open."""
        service = await self._started(request)
        cluster = broadcasting(KafkaCluster(service.settings))
        ends: Ends = {}
        where = "the inputs are not known"
        try:
            async with asyncio.timeout(request.deadline_s), reading(cluster) as reader:
                for source in await _inputs(service, cluster):
                    if request.internal and source.topic not in service.app.internal_names:
                        continue
                    where = f"{source} has an open transaction, or its end is not known"
                    await decided_bounds(cluster, source)  # what a commit was answered for may lack its marker
                    for record in await newest(reader, source, 1):
                        ends[source.topic, source.partition] = record.offset + 1
        except TimeoutError:
            raise StopError(f"not caught up after {request.deadline_s:g} s: {where}") from None
        return ends

    async def _behind(self, request: Request) -> str:
        """Say what is not committed yet by any process; empty if nothing. StopError: a partition of this one FAILED."""
        service = await self._started(request)
        _raise_failed(service)
        if not request.ends:
            return ""
        cluster, positions = KafkaCluster(service.settings), Ends()
        view = await inspect(service.app, service.settings, cluster)
        async with reading(cluster) as reader:
            for context in contexts_of(service.app, service.settings, cluster, view, INSTANCE_ID):
                log = context.increments
                if (last := await last_increment(reader, log)) is not None:
                    for topic, position in last.increment.positions.items():
                        positions[topic, log.partition] = position
        late = [
            f"{TopicPartition(*place)} is at {positions.get(place, 'no position')} of {end}"
            for place, end in request.ends.items()
            if positions.get(place, -1) < end
        ]
        return ", ".join(late)

    async def _state(self, request: Request) -> Answered:
        """Load the state as a recovery would find it now, proven by the digest; no owner is fenced."""
        service, partition = await self._started(request), request.partition
        app, settings = service.app, service.settings
        cluster = KafkaCluster(settings)
        view = await inspect(app, settings, cluster)
        if not 0 <= partition < view.partition_count:
            raise UnknownPartition(partition, view.partition_count)
        context = contexts_of(app, settings, cluster, view, INSTANCE_ID)[partition]
        await decided_bounds(cluster, context.increments)
        examiner = Examiner(context, app.new_store())
        try:
            if (error := await examiner.examine_beside_owner()) is not None:
                raise await examiner.hinted(error)
            return Answered(slices=slices_of(examiner.store), stream_time_ms=examiner.store.stream_time_ms)
        finally:
            await examiner.close()


async def _inputs(service: Service[Any], cluster: Cluster) -> list[TopicPartition]:
    view = await inspect(service.app, service.settings, cluster)
    inputs = (*service.app.input_names, *view.matched)
    return [TopicPartition(name, number) for name in inputs for number in range(view.partition_count)]


def _raise_failed(service: Service[Any]) -> None:
    """Raise StopError: a partition of this process FAILED."""
    for status in service.restore_status():
        if status.phase == "failed" and status.error is not None:
            error = status.error
            raise StopError(f"partition {status.partition} FAILED: {error.kind}: {error.message}", hint=error.hint)


async def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer one request after the other, until a stop. A handler that waits lets none be answered: then the log gets
    the stack of each thread once the deadline has passed, and the parent shows it."""
    waiting: asyncio.Queue[Request] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    order = read_frame(requests, order_in)
    if order is None:  # the parent is gone
        return

    def listen() -> None:
        while (request := read_frame(requests, request_in)) is not None:
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
