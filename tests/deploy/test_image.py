"""The Dockerfile, performed without Docker, and the service started from what it installs."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path, PurePath
from typing import Any

import pytest

from snapreplay.devbroker.free_ports import free_ports
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import NewTopic
from tests.api.test_tls import Authority
from tests.deploy.dockerfile import ROOT, Image, command, last, named, of_the_service, perform, stages
from tests.support.deadlines import scaled, within
from tests.support.fake_control import FakeControl
from tests.support.served import served

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
FINAL = stages(DOCKERFILE)[-1]
SPARK = named(DOCKERFILE, "spark")
ENTRYPOINT = ROOT / "deploy/spark-entrypoint.sh"
pytestmark = pytest.mark.timeout(300)  # the first one downloads what the image holds


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Every step of the Dockerfile, performed into an empty folder: hashes checked, nothing of `dev`."""
    made = Image(tmp_path_factory.mktemp("image"))
    for stage in of_the_service((ROOT / "Dockerfile").read_text(encoding="utf-8")):
        perform(stage, made)
    return made


@pytest.mark.parametrize("stage", [FINAL, SPARK], ids=["service", "spark"])
def test_runs_as_a_number_that_is_not_root(stage) -> None:
    """Kubernetes can check runAsNonRoot: a name would not tell."""
    user = last(stage, "USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)


@pytest.mark.parametrize(("status", "code"), [("200 OK", 0), ("503 Service Unavailable", 1), ("", 1)])
def test_the_health_check_is_bash_alone(status: str, code: int, tmp_path: Path) -> None:
    """It reads one line of an answer, and finds neither a Python nor anything else on its path."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        env = {"PATH": str(tmp_path), "SNAPREPLAY_HTTP__PORT": str(server.getsockname()[1])}
        check = ROOT / "deploy" / command(FINAL, "HEALTHCHECK")[0].rpartition("/")[2]
        with subprocess.Popen([check], env=env) as asking:
            connection, _ = server.accept()
            with connection:
                asked = b""
                while not asked.endswith(b"\r\n\r\n"):  # bash writes line by line
                    asked += connection.recv(1000)
                connection.sendall(f"HTTP/1.1 {status}\r\n\r\n".encode() if status else b"")
            assert asking.wait(timeout=scaled(20)) == code
    assert asked.startswith(b"HEAD /healthz HTTP/1.1\r\n")


async def test_the_health_check_asks_by_tls_where_the_service_does(tmp_path: Path) -> None:
    """With the Python of the image, whoever has signed the certificate."""
    name = await asyncio.to_thread(Authority(tmp_path, "any").signed, "server")
    settings = HttpSettings(port=0, tls_certificate_file=name[0], tls_key_file=name[1])
    text = (ROOT / "deploy/health.sh").read_text(encoding="utf-8")
    check = text.replace("/opt/snapreplay/bin/python", sys.executable)
    assert check != text
    async with served(FakeControl(), settings) as url:
        for port, code in ((url.rpartition(":")[2], 0), ("1", 1)):
            env = {"SNAPREPLAY_HTTP__PORT": port, "SNAPREPLAY_HTTP__TLS_CERTIFICATE_FILE": name[0]}
            done = await asyncio.to_thread(subprocess.run, ["/bin/bash", "-c", check], env=env, check=False)
            assert done.returncode == code


def test_nothing_is_installed_without_a_hash() -> None:
    """Every pip call checks hashes, or installs the wheel just built and asks no registry."""
    runs = [rest for stage in stages(DOCKERFILE) for word, rest in stage if word == "RUN"]
    installs = [
        part for run in runs for part in run.split("&&") if "pip" in part and (" install " in part or " wheel " in part)
    ]
    assert installs
    assert all("--require-hashes" in each or "--no-index" in each for each in installs)


def test_only_locked_packages_are_installed(image: Image) -> None:
    """What is installed is in requirements/service.lock, and snapreplay: no test tool, no builder."""
    locked = re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements/service.lock").read_text(), flags=re.MULTILINE)
    found = {
        re.sub(r"[-_.]+", "-", path.name.split("-")[0]).lower()
        for path in image.place("/opt/snapreplay").rglob("*.dist-info")
    }
    assert "snapreplay" in found
    assert found - {"snapreplay"} <= set(locked)
    assert {"aiokafka", "fastapi", "msgspec"} <= found


@pytest.mark.kafka
async def test_the_service_runs_from_it(
    image: Image, broker: Any, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """As a container would: app file mounted, topics and genesis made, healthy, LIVE, and 0 on SIGTERM."""
    name, (port,) = unique("image"), free_ports(1)
    image.place("/app/app.py").write_text(APP.replace("NAME", name))
    cluster = KafkaCluster(Settings(kafka={"bootstrap.servers": broker.bootstrap_servers}))
    await cluster.create_topics([NewTopic(f"{name}-in", 2)])
    given = {"SNAPREPLAY_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers, "SNAPREPLAY_HTTP__PORT": str(port)}
    given["SNAPREPLAY_HTTP__INSECURE"] = "true"  # the image listens on all addresses
    for step in (["snapreplay", "topics", "ensure", "app.py"], ["snapreplay", "init", "app.py"]):
        done = await asyncio.to_thread(_call, image, step, **given)
        assert done.returncode == 0, done.stderr
    async with _container(image, given) as service:
        await _until_live(f"http://127.0.0.1:{port}/restore-status")
        healthy = await asyncio.to_thread(_call, image, command(FINAL, "HEALTHCHECK"), **given)
        assert healthy.returncode == 0, healthy.stderr
        service.send_signal(signal.SIGTERM)
        async with within(30):
            assert await service.wait() == 0


APP = """
from snapreplay import App, MapState, Topic

numbers = Topic("NAME-in")
app = App("NAME", inputs=[numbers], state=lambda: MapState(str, int, default=int))

@app.handler(numbers)
def on_number(record, state, out):
    state[record.key] += record.value
"""


def _call(image: Image, words: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(image.place(str(PurePath("/opt/snapreplay/bin", words[0])))), *words[1:]],
        cwd=image.place("."),
        env={**image.env, **env},
        capture_output=True,
        text=True,
        timeout=scaled(60),
        check=False,
    )


@asynccontextmanager
async def _container(image: Image, env: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    program, *arguments = [*command(FINAL, "ENTRYPOINT"), *command(FINAL, "CMD")]
    process = await asyncio.create_subprocess_exec(
        str(image.place("/opt/snapreplay/bin") / program), *arguments, cwd=image.place("."), env={**image.env, **env}
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _until_live(url: str) -> None:
    async with within(30):
        while not await asyncio.to_thread(_is_live, url):  # noqa: ASYNC110 - HTTP has no events
            await asyncio.sleep(0.05)


def _is_live(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - loopback
            return bool(json.load(answer)["summary"]["all_live"])
    except OSError:
        return False


def test_the_image_calls_the_entry_point() -> None:
    """It is copied, may be run, and its default command says what there is."""
    assert any(rest.split()[0] == "deploy/spark-entrypoint.sh" for word, rest in SPARK if word == "COPY")
    assert ENTRYPOINT.stat().st_mode & 0o111
    assert command(SPARK, "ENTRYPOINT") == ["/opt/entrypoint.sh"]
    assert command(SPARK, "CMD")[:2] == ["snapreplay", "audit"]
