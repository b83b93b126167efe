"""Seconds until all workers that are left tell the same, after one is killed: `python -m benchmarks.agreement`.

`run --processes 3` with six partitions; its workers are killed (SIGKILL) in turn. Each of the other two is asked at its
own address, and whoever answers at the address of all: for owner, epoch and phase of each partition. Measured from the
kill: until all of them say the same, without the dead one; and until all three say that all partitions are live.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks import harness
from tests.support.child import workers
from tests.support.truths import Truth, addresses, agreed, all_live

APP = "benchmarks/ledger_app.py"
PARTITIONS, WORKERS = 6, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--keys", type=int, default=100_000)
    given = parser.parse_args()
    print(f"{given.keys:,} keys; {harness.machine()}", flush=True)
    with harness.local_broker() as broker, tempfile.TemporaryDirectory() as scratch:
        servers = broker.bootstrap_servers
        harness.create_topics(servers, "bench-in", "bench-out", partitions=PARTITIONS)
        harness.snapreplay("topics", "ensure", APP, "--bootstrap-servers", servers)
        harness.snapreplay("init", APP, "--bootstrap-servers", servers)
        harness.load(servers, "bench-in", given.keys, given.keys, partitions=PARTITIONS)
        arguments = [*harness.service_arguments(APP, servers, 0), "--processes", str(WORKERS)]
        log = Path(scratch, "service.log")
        with harness.child(log, *arguments) as parent:
            harness.wait_until(lambda: "HTTP API: " in log.read_text(), "the address", 0.1)
            url = re.findall(r"HTTP API: (http://[^\s/]+)", log.read_text())[0]
            found = [_killed(parent, url, number % WORKERS) for number in range(given.kills)]
            parent.terminate()
            parent.wait()
    for what, seconds in zip(("all that are left agree", "all are live again"), zip(*found, strict=True), strict=True):
        print(f"{what}: {harness.spread(seconds)} s", flush=True)


def _killed(parent: psutil.Process, url: str, number: int) -> tuple[float, float]:
    """Kill a worker; return the seconds until the others agree, and until all are live again."""
    _live(url)
    worker = workers(parent)[number]
    urls = addresses(url)
    (dead,) = [process_id for process_id, each in urls.items() if _listens(worker, each)]
    asked = [url, *(each for process_id, each in urls.items() if process_id != dead)]
    worker.kill()
    killed_at = time.perf_counter()

    def agree() -> bool:
        told = agreed(asked)
        return told is not None and dead not in _owners(told)

    agreed_at = harness.wait_until(agree, "the others to agree", 0.005)
    return agreed_at - killed_at, _live(url) - killed_at


def _live(url: str) -> float:
    """Wait until all workers say that all partitions are live; return when that was."""
    return harness.wait_until(lambda: all_live(url, WORKERS, PARTITIONS) is not None, "all to be live", 0.02)


def _listens(worker: psutil.Process, url: str) -> bool:
    port = int(url.rpartition(":")[2])
    return any(each.laddr.port == port for http in worker.children() for each in http.net_connections("tcp"))


def _owners(told: Truth) -> set[str | None]:
    return {each.process_id for each in told.values()}


if __name__ == "__main__":
    main()
