"""The image and deploy/compose.yaml by Docker, with a process killed under load: `make docker`, as root on Debian.

Every output is checked. Prints what happened with times, and exits with 1 if anything was not as it must be.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.deploy.cluster.load import Load
from tests.deploy.dockerfile import ROOT

MOST_BYTES = 250_000_000
FIRST_OUTPUT_SECONDS = 5.0
SERVERS = "127.0.0.1:29092"  # of compose.yaml, for programs of this machine
STARTED = time.monotonic()


def say(text: str) -> None:
    sys.stdout.write(f"{time.monotonic() - STARTED:6.1f} s  {text}\n")
    sys.stdout.flush()


def must(is_so: object, text: str) -> None:
    if not is_so:
        raise SystemExit(text)


class Docker:
    """The daemon in `folder`, and the project of deploy/compose.yaml."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        os.environ |= {"DOCKER_HOST": f"unix://{folder}/docker.sock", "DOCKER_BUILDKIT": "1"}

    def call(self, *arguments: str, fails: bool = False) -> str:
        return self._run([self._folder / "root/usr/bin/docker", *arguments], fails=fails)

    def compose(self, *arguments: str) -> str:
        file = ROOT / "deploy/compose.yaml"
        profiles = ("--profile", "core", "--profile", "observability", "--profile", "spark")
        return self._run([self._folder / "docker-compose", "-f", file, *profiles, *arguments])

    def inspect(self, name: str) -> Any:
        return json.loads(self.call("inspect", name))[0]

    def is_healthy(self, name: str) -> bool:
        return bool(self.inspect(name)["State"]["Health"]["Status"] == "healthy")

    def was_restarted(self, name: str) -> bool:
        return bool(self.inspect(name)["RestartCount"] == 1)

    def _run(self, command: list[Any], *, fails: bool = False) -> str:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        must((done.returncode != 0) == fails, f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout


async def until(is_so: Callable[[], Any], what: str, seconds: float = 60) -> None:
    """Wait until `is_so` returns something true. An answer that is missing is not."""
    deadline = time.monotonic() + seconds
    while not await asyncio.to_thread(_tried, is_so):
        must(time.monotonic() < deadline, f"not within {seconds} s: {what}")
        await asyncio.sleep(0.1)


def _tried(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except (OSError, KeyError, ValueError):
        return None


def get(url: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{url}", timeout=5) as answer:
        return json.load(answer)


def is_ready(port: int) -> bool:
    return bool(get(f"{port}/readyz")["status"] == "ok")


async def all_are_live() -> None:
    """Each of the two processes owns partitions, and all of them are LIVE."""

    def live() -> bool:
        found = get("8080/restore-status")
        return bool(found["summary"]["all_live"]) and len({each["process_id"] for each in found["partitions"]}) == 2

    await until(live, "both processes own partitions that are LIVE")


def image(docker: Docker) -> None:
    docker.call("build", "-q", "-t", "snapreplay", str(ROOT))
    size, base = (docker.inspect(name)["Size"] for name in ("snapreplay", "python:3.11-slim-bookworm"))
    must(size <= MOST_BYTES, f"the image has {size:,} bytes")
    say(f"the image is built: {size / 1e6:.0f} MB, of them {base / 1e6:.0f} MB of the base")


async def compose(docker: Docker) -> None:
    await asyncio.to_thread(docker.compose, "up", "-d", "--build", "service", "service-2", "prometheus")
    await all_are_live()
    say("compose up: the topics and batch 0 were made, and both processes are LIVE")
    for name in ("snapreplay-service-1", "snapreplay-service-2-1"):
        found = docker.inspect(name)
        must(found["Config"]["User"] == "10001:10001" and found["HostConfig"]["ReadonlyRootfs"], name)
        docker.call("exec", name, "touch", "/app/a-file", fails=True)
        await until(partial(docker.is_healthy, name), "it is healthy")
    say("both are user 10001 with a root that is read-only, and healthy for Docker")

    flight = b'{"carrier": "UA", "origin": "EWR", "dest": "IAH", "distance": 1}'
    load = Load(SERVERS, topics=("flights", "flight-stats"), value=flight, balance_of=lambda out: out["stats"]["miles"])
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(load.run())
        await asyncio.sleep(10)
        load.gap_s()
        for name, port in (("snapreplay-service-1", 8080), ("snapreplay-service-2-1", 8081)):
            # The kernel's kill, not Docker's: after its own one Docker restarts nothing.
            os.kill(docker.inspect(name)["State"]["Pid"], signal.SIGKILL)
            await until(partial(docker.was_restarted, name), "Docker restarts it")
            await until(partial(is_ready, port), "it is ready")
            await all_are_live()
            await asyncio.sleep(3)  # the last outputs arrive
            say(f"{name} was killed and restored: longest time without outputs of a partition {load.gap_s():.1f} s")
        load.end()
    must(not load.wrong, "\n".join(load.wrong[:10]))
    say(f"{load.sent:,} flights, {load.received:,} outputs, each with the right sum")

    rate = "sum(snapreplay_records_total)"
    await until(lambda: len(get("9090/api/v1/targets")["data"]["activeTargets"]) == 2, "Prometheus has both")
    await until(lambda: get(f"9090/api/v1/query?query={rate}")["data"]["result"], "Prometheus has their metrics")
    up = {each["labels"]["instance"]: each["health"] for each in get("9090/api/v1/targets")["data"]["activeTargets"]}
    must(set(up.values()) == {"up"}, str(up))
    say(f"Prometheus asks {' and '.join(sorted(up))}")
    audit = ("--entrypoint", "snapreplay", "init", "audit", "app.py", "--engine", "python", "--level", "changes")
    say(await asyncio.to_thread(docker.compose, "run", "--rm", *audit))


async def first_outputs(docker: Docker) -> None:
    """How long `docker run` takes until the first output of an app can be read, with its input waiting: three times,
    because others use the machine, too."""
    run = ("run", "--read-only", "--network", "snapreplay_default", "-e", "SNAPREPLAY_HTTP__INSECURE=true")
    more = ("-e", "SNAPREPLAY_KAFKA__BOOTSTRAP_SERVERS=kafka:9092", "-v", f"{ROOT}/examples/ledger.py:/app/app.py:ro")
    once = (*run, *more, "--rm", "--entrypoint", "snapreplay", "snapreplay")
    for name in ("payments", "balances"):
        topics = ("/opt/kafka/bin/kafka-topics.sh", "--bootstrap-server", "kafka:9092")
        docker.compose("exec", "-T", "kafka", *topics, "--create", "--topic", name, "--partitions", "2")
    docker.call(*once, "topics", "ensure", "app.py")
    docker.call(*once, "init", "app.py")
    producer = AIOKafkaProducer(bootstrap_servers=SERVERS)
    consumer = AIOKafkaConsumer(
        "balances", bootstrap_servers=SERVERS, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    took_s = []
    async with producer, consumer:
        for balance in (3, 6, 9):
            await producer.send_and_wait("payments", key=b"ada", value=b'{"amount": 3}')
            begun = time.monotonic()
            container = await asyncio.to_thread(docker.call, *run, *more, "-d", "snapreplay")
            async with asyncio.timeout(60):
                record = await consumer.getone()
            took_s.append(time.monotonic() - begun)
            must(json.loads(record.value)["balance"] == balance, str(record))
            await asyncio.to_thread(docker.call, "stop", container.strip())
    times = ", ".join(f"{each:.1f}" for each in took_s)
    say(f"the first output was read {times} s after `docker run`, with a load of {os.getloadavg()[0]:.1f}")
    must(min(took_s) <= FIRST_OUTPUT_SECONDS, "that is too long")


async def main(folder: Path) -> None:
    docker = Docker(folder)
    try:
        image(docker)
        await compose(docker)
        await first_outputs(docker)
        say(docker.compose("ps", "-a", "--format", "table {{.Service}}\t{{.Status}}"))
    finally:
        docker.compose("down", "--volumes")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).resolve()))
