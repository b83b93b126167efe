"""The time that the event loop is blocked while a snapshot of 1 M keys is written or adopted: `benchmarks.stall`.

A whole service in this process, on a local broker, processes a backlog as fast as it can. Beside it a task asks again
and again to be woken after a millisecond. Its delay is what another partition would wait. A last adoption, without a
backlog, shows its CPU time, that of the waiting service included.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks import harness
from benchmarks.ledger_app import app
from benchmarks.spark import compacted
from snapreplay.service.config.settings import load_settings
from snapreplay.service.control.operations import AdoptSnapshot, Operation, OperationState
from snapreplay.service.program import running
from snapreplay.service.service import Service

APP = "benchmarks/ledger_app.py"
BEAT_SECONDS = 0.001
WITHOUT_SNAPSHOT_SECONDS = 3.0
BACKLOG_PER_KEY = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--propose", help=argparse.SUPPRESS)  # a child process
    arguments = parser.parse_args()
    if arguments.propose:
        _propose(arguments.propose)
        return
    print(f"{arguments.keys:,} keys; {harness.machine()}")
    gc.set_threshold(5_000, 8, 2)  # this, the next line and `freeze`: as `snapreplay run` does
    sys.setswitchinterval(0.001)
    for _ in range(arguments.runs):
        gc.collect()  # frees the state of the last run; during this run it would take 80 ms
        gc.freeze()
        asyncio.run(_run(arguments.keys))


async def _run(keys: int) -> None:
    with harness.local_broker() as broker:
        records = _prepare(broker.bootstrap_servers, keys)
        settings = load_settings({"kafka.bootstrap.servers": broker.bootstrap_servers, "snapshot.every_seconds": 0})
        async with running(app, settings) as service:
            await service.wait_live(60)
            await _every_key_seen(service, keys)
            async with _beats("no snapshot"):
                await asyncio.sleep(WITHOUT_SNAPSHOT_SECONDS)
            async with _beats("snapshot"):
                operation = await service.trigger_snapshot(reason="benchmark")
            _check(operation)
            proposed_offset = await _proposed(broker.bootstrap_servers)
            async with _beats("adoption"):
                await _adopted(service, proposed_offset)
            if _position(service) >= records:
                raise SystemExit("the backlog was too short")
            await service.wait_caught_up(harness.DEADLINE_SECONDS)
            proposed_offset, began = await _proposed(broker.bootstrap_servers), time.process_time()
            await _adopted(service, proposed_offset)
            print(f"adoption without a backlog: {time.process_time() - began:.2f} s of CPU")


async def _proposed(bootstrap_servers: str) -> int:
    """Propose a snapshot; return the offset of the manifest. A process of its own makes it: what it frees would
    stop this one."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.stall", "--propose", bootstrap_servers), stdout=subprocess.PIPE
    )
    printed, _ = await process.communicate()
    return int(printed)


def _propose(bootstrap_servers: str) -> None:
    (result,) = compacted(load_settings({"kafka.bootstrap.servers": bootstrap_servers}))
    if result.manifest_offset < 0:
        raise SystemExit(f"nothing is proposed: {result}")
    print(result.manifest_offset)


async def _adopted(service: Service[Any], manifest_offset: int) -> None:
    """Ask in the way that HTTP does."""
    operation = service.control.perform(AdoptSnapshot(0, manifest_offset))
    async with asyncio.timeout(harness.DEADLINE_SECONDS):
        while operation.state is OperationState.RUNNING:
            await asyncio.sleep(0.01)  # between two looks, under the deadline
            operation = service.control.operation(operation.id) or operation
    _check(operation)


def _check(operation: Operation) -> None:
    if operation.state is not OperationState.SUCCEEDED:
        raise SystemExit(f"it did not succeed: {operation}")


def _prepare(bootstrap_servers: str, keys: int) -> int:
    harness.create_topics(bootstrap_servers, "bench-in", "bench-out")
    harness.snapreplay("topics", "ensure", APP, "--bootstrap-servers", bootstrap_servers)
    harness.snapreplay("init", APP, "--bootstrap-servers", bootstrap_servers)
    records = keys + int(keys * BACKLOG_PER_KEY)
    harness.load(bootstrap_servers, "bench-in", records, keys)
    return records


async def _every_key_seen(service: Service[Any], keys: int) -> None:
    async with asyncio.timeout(harness.DEADLINE_SECONDS):
        while _position(service) < keys:  # noqa: ASYNC110 - a position has no event
            await asyncio.sleep(0.05)  # between two looks, under the deadline


def _position(service: Service[Any]) -> int:
    (status,) = service.restore_status()
    return status.inputs[0].position if status.inputs else 0


@asynccontextmanager
async def _beats(name: str) -> AsyncIterator[None]:
    """Print how late the beats in this block were."""
    late: list[float] = []
    beating = asyncio.create_task(_beat(late))
    began = time.perf_counter()
    yield
    seconds = time.perf_counter() - began
    beating.cancel()
    late.sort()
    median, most_of_all = late[len(late) // 2], late[int(len(late) * 0.99)]
    print(
        f"{name:>12} {seconds:5.2f} s, {len(late):5} beats late by ms: median {median * 1e3:4.1f},"
        f" 99 % {most_of_all * 1e3:4.1f}, longest {late[-1] * 1e3:4.1f}",
        flush=True,
    )


async def _beat(late: list[float]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + BEAT_SECONDS
        await asyncio.sleep(BEAT_SECONDS)
        late.append(loop.time() - due)


if __name__ == "__main__":
    main()
