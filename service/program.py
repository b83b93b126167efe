"""The functions that a program calls: run apps, embed one, create its topics and genesis."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from snapreplay.app.app import App, check_app, check_apps
from snapreplay.app.load import check_together, name_in_main, name_of
from snapreplay.errors import SnapreplayError
from snapreplay.service.config.settings import Settings, used_settings
from snapreplay.service.control.protocol import Http, SharedHttp
from snapreplay.service.decisions.before_init import StartFrom
from snapreplay.service.decisions.first_start import FirstStart
from snapreplay.service.decisions.init import init_app
from snapreplay.service.kafka.client_log import summarise_client_log
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.runtime.tasks import context_of_app
from snapreplay.service.service import Service
from snapreplay.service.signals import Signals
from snapreplay.service.topics import requirements

log = logging.getLogger("snapreplay")

S = TypeVar("S")


@asynccontextmanager
async def running(
    app: App[S], settings: Settings | None = None, http: Http | None = None, *, first_start: FirstStart = "wait"
) -> AsyncIterator[Service[S]]:
    """Run a service during an `async with` block, then stop it gracefully. Handlers run in this event loop.

    Args:
        settings: if None, read from the environment and the file.
        http: serves the HTTP API; None: no HTTP.
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
    app: App[Any] | Sequence[App[Any]],
    settings: Settings | None = None,
    http: SharedHttp | None = None,
    *,
    first_start: FirstStart = "wait",
) -> int:
    """Run an app until SIGTERM, SIGHUP, SIGQUIT or Ctrl-C, then stop gracefully, as `snapreplay run` does. The
    program configures logging. If the service has not stopped 2 s after `timeouts.shutdown_ms`, the process exits
    with code 6.

    Several apps run side by side, each with its own group, state and topics. They share the event loop and the HTTP
    port. If one is refused at start, all stop. A FAILED partition does not affect other apps.

    Args:
        app: one, or several.
        settings: of all apps; if None, read from the environment and the file.
        http: serves the HTTP API; None: no HTTP.
        first_start: for an app without a genesis: "wait" for it, "refuse", or begin at the "earliest" or "latest"
            records of its inputs.

    Returns:
        The exit code for the process: 0.

    Raises:
        NotBegun: the app is new, and `first_start` is "refuse".
        UsageError, StopError, AccessError: refused before any partition was touched; with several apps, also if two
            have the same id.
    """
    _tune_collector()
    # A thread that waits for the interpreter gets its turn after 1 ms, not 5: during a replay that computes, HTTP
    # answered in 6 ms instead of 18 (median), and the replay took no longer (measured).
    sys.setswitchinterval(0.001)
    summarise_client_log()
    apps: list[Any] = [*app] if isinstance(app, list | tuple) else [app]
    check_apps(apps)
    check_together([name for each in apps if (name := name_of(each) or name_in_main(each))])
    used = used_settings(settings)
    paths: Sequence[str] = [""] * len(apps)
    if http is not None and len(apps) > 1:
        paths = http.share([each.app_id for each in apps])
    services = [
        Service(each, used, http, first_start=first_start, path=path) for each, path in zip(apps, paths, strict=True)
    ]
    return asyncio.run(_run(services, used.timeouts.shutdown_ms / 1000))


async def ensure_topics(
    app: App[Any], settings: Settings | None = None, *, create_inputs: int | None = None, replace_lost: bool = False
) -> list[str]:
    """Create the app's own topics if none of them exists, otherwise check them. As `snapreplay topics ensure`.

    Args:
        settings: if None, read from the environment and the file.
        create_inputs: also create missing inputs and outputs, with this many partitions.
        replace_lost: if only one of the increments and snapshots topics exists, create the other one, empty.

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
        settings: if None, read from the environment and the file.
        start: where the inputs are read from: "earliest" or "latest".
        state_is_lost: also initialise an app that has run, if none of its processes is a member of its group.

    Returns:
        One line per partition, then one per output topic that holds records already.

    Raises:
        StopError: the app has run, and its state was lost; nothing was written.
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


async def _run(services: Sequence[Service[Any]], within_seconds: float) -> int:
    """Run until a signal, or until one of the apps is refused; then stop all."""
    signalled, loop = asyncio.Event(), asyncio.get_running_loop()
    contexts = {each: context_of_app(each.app.app_id if len(services) > 1 else "") for each in services}

    def begun(service: Service[Any], work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return loop.create_task(work, context=contexts[service])

    async def started(service: Service[Any]) -> None:
        try:
            await service.wait_started()
        except SnapreplayError as error:
            if len(services) > 1:
                log.error("this app cannot start, so all apps stop: %s", error.message)  # noqa: TRY400 - the CLI prints the whole error
            raise

    with Signals(loop, signalled.set, within_seconds):
        touched = []
        try:
            for each in services:
                touched.append(each)
                each.is_start_awaited = True  # below, by `started`
                await begun(each, each.start())
            await _signal_or_refusal(
                loop.create_task(signalled.wait()), [begun(each, started(each)) for each in services]
            )
        finally:
            stopping = [begun(each, each.stop()) for each in touched]
            await asyncio.wait(stopping)
            for stopped in stopping:
                stopped.result()
    log.info("stopped")
    return 0


async def _signal_or_refusal(signal: asyncio.Task[Any], starting: list[asyncio.Task[Any]]) -> None:
    """Return after the signal; raise the error of the start that fails before it, the first in order of several."""
    try:
        while not signal.done():
            done, _ = await asyncio.wait([signal, *starting], return_when=asyncio.FIRST_COMPLETED)
            for each in starting:
                if each in done:
                    each.result()
            starting = [each for each in starting if each not in done]
    finally:
        for each in starting:
            each.cancel()
