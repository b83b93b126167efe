"""The functions that a program calls: run an app, run it inside of a program, make its topics, its beginning."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from snapreplay.app.app import App, check_app
from snapreplay.service.config.settings import Settings, used_settings
from snapreplay.service.control.protocol import Http
from snapreplay.service.decisions.before_init import StartFrom
from snapreplay.service.decisions.first_start import FirstStart
from snapreplay.service.decisions.init import init_app
from snapreplay.service.kafka.client_log import summarise_client_log
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.service import Service
from snapreplay.service.signals import Signals
from snapreplay.service.topics import requirements

log = logging.getLogger("snapreplay")

S = TypeVar("S")


@asynccontextmanager
async def running(
    app: App[S], settings: Settings | None = None, http: Http | None = None, *, first_start: FirstStart = "wait"
) -> AsyncIterator[Service[S]]:
    """Start a service for the length of an `async with` block, then stop it gracefully. Handlers run in this loop.

    Args:
        settings: None: from the environment and the file.
        http: serves the HTTP API; None: there is none.
        first_start: for an app without a genesis: "wait" for it, "refuse", or begin at the "earliest" or "latest"
            records of its inputs. A refusal is raised by the `wait_…` methods.

    Raises:
        UsageError: the app is incomplete, the settings are wrong, or the HTTP port is taken.
        StateUnsaved: as `Service.stop`.
    """
    service = Service(app, settings, http, first_start=first_start)
    try:
        await service.start()
        yield service
    finally:
        await service.stop()


def run(
    app: App[Any], settings: Settings | None = None, http: Http | None = None, *, first_start: FirstStart = "wait"
) -> int:
    """Run an app until SIGTERM, SIGHUP, SIGQUIT or Ctrl-C, then stop gracefully. As `snapreplay run`; logging is the
    program's. The process is ended with exit code 6 if it has not stopped 2 s after `timeouts.shutdown_ms`.

    Args:
        settings: None: from the environment and the file.
        http: serves the HTTP API; None: there is none.
        first_start: for an app without a genesis: "wait" for it, "refuse", or begin at the "earliest" or "latest"
            records of its inputs.

    Returns:
        The exit code for the process: 0.

    Raises:
        NotBegun: the app is new, and `first_start` is "refuse".
        UsageError, StopError, AccessError: refused before any partition was touched.
    """
    _tune_collector()
    # A thread that waits for the interpreter gets its turn after 1 ms, not 5: during a replay that computes, HTTP
    # answered in 6 ms instead of 18 (median), and the replay took no longer (measured).
    sys.setswitchinterval(0.001)
    summarise_client_log()
    return asyncio.run(_run(Service(app, settings, http, first_start=first_start)))


async def ensure_topics(
    app: App[Any], settings: Settings | None = None, *, create_inputs: int | None = None, replace_lost: bool = False
) -> list[str]:
    """Create the app's own topics if all of them are absent, otherwise check them. As `snapreplay topics ensure`.

    Args:
        settings: None: from the environment and the file.
        create_inputs: also create missing inputs and outputs, with this many partitions.
        replace_lost: create the missing one of increments and snapshots topic, empty, although the other one exists.

    Returns:
        One line per topic.

    Raises:
        UsageError: an input or output is missing, the inputs differ in their number of partitions, or
            `create_inputs` is not a number of partitions.
        StopError: a topic was not created, or one that exists cannot hold the app's log.
        RetryableError: the cluster did not answer, or refused access.
    """
    check_app(app)
    used = used_settings(settings)
    return await requirements.ensure_topics(
        app, used, KafkaCluster(used), create_io_partitions=create_inputs, replace_lost=replace_lost
    )


async def init(
    app: App[Any], settings: Settings | None = None, *, start: StartFrom = "earliest", state_is_lost: bool = False
) -> list[str]:
    """Write the genesis of each partition that has none; repeating it changes nothing. As `snapreplay init`.

    Args:
        settings: None: from the environment and the file.
        start: where the inputs are read from: "earliest" or "latest".
        state_is_lost: also for an app that has run, as long as none of its processes is a member of its group.

    Returns:
        One line per partition, then one per output topic that holds records already.

    Raises:
        StopError: the app has run, and what it wrote was lost; nothing was written.
        UsageError: a topic is missing, or `start` or a setting is wrong.
        RetryableError: the cluster did not answer, or refused access.
    """
    check_app(app)
    used = used_settings(settings)
    return await init_app(app, used, KafkaCluster(used), start, state_is_lost=state_is_lost)


def _tune_collector() -> None:
    """Let the collector search for cycles rarely: a batch's objects die by reference count, and a search every 700
    allocations costs a tenth of the throughput. Closed clients are cycles: with rarer searches of the older
    generations, memory grew by a megabyte per minute of takeovers. More than 5,000 young objects stop everything for
    longer than 3 ms. All measured. Only in `run`, whose process is ours."""
    gc.freeze()
    gc.set_threshold(5_000, 8, 2)


async def _run(service: Service[Any]) -> int:
    signalled = asyncio.Event()
    within_seconds = service.settings.timeouts.shutdown_ms / 1000
    with Signals(asyncio.get_running_loop(), signalled.set, within_seconds):
        try:
            await service.start()
            waiting = asyncio.create_task(signalled.wait())
            started = asyncio.create_task(service.wait_started())
            await asyncio.wait([waiting, started], return_when=asyncio.FIRST_COMPLETED)
            if started.done():
                started.result()
                await waiting
            else:
                started.cancel()
        finally:
            await service.stop()
    log.info("stopped")
    return 0
