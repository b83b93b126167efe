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

from snapreplay import __version__
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


@pytest.mark.parametrize("word", ["ENTRYPOINT", "CMD", "HEALTHCHECK"])
def test_no_shell_stands_between(word: str) -> None:
    """SIGTERM reaches Python, and the health check is started directly: all commands have the exec form."""
    assert command(FINAL, word)


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


def test_there_is_no_java(image: Image) -> None:
    """The service needs none: neither a package nor a jar comes in."""
    steps = " ".join(rest for stage in of_the_service(DOCKERFILE) for _, rest in stage)
    assert not re.search(r"java|jdk|jre|maven", steps, flags=re.IGNORECASE)
    assert not list(image.place("/opt/snapreplay").rglob("*.jar"))


def test_the_context_holds_what_is_copied_and_little_else() -> None:
    """.dockerignore lets in every source of a COPY, and neither .git nor the environment."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_in = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        name.split("/")[0]
        for stage in stages(DOCKERFILE)
        for word, rest in stage
        if word == "COPY" and not rest.startswith("--from")
        for name in rest.split()[:-1]
    }
    assert "*" in lines
    assert copied == let_in


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


def test_it_knows_its_version(image: Image) -> None:
    """The console script works, from the installed package and not from this tree."""
    done = _call(image, ["snapreplay", "version"])
    assert done.stdout.startswith(f"snapreplay {__version__}\nengine: pure (")


def test_unhealthy_when_nobody_answers(image: Image) -> None:
    """The health check fails, with the code that Docker understands, while there is no service."""
    (port,) = free_ports(1)
    done = _call(image, command(FINAL, "HEALTHCHECK"), SNAPREPLAY_HTTP__PORT=str(port))
    assert done.returncode == 1


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


SPARKS_WORDS = {
    "SPARK_HOME": "/spark",
    "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "pod-3",
    "SPARK_JAVA_OPT_0": "-Da=b c",
    "SPARK_JAVA_OPT_1": "-Dd=$HOME",
}


def called(tmp_path, *words, **env) -> list[str]:
    """Return what the entry point runs in place of itself: each program found first on its path says what it was
    given."""
    for name in ("java", "spark-submit"):
        program = tmp_path / name
        program.write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')
        program.chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    done = subprocess.run([ENTRYPOINT, *words], env={"PATH": path, **env}, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_an_executor_gets_all_that_spark_says(tmp_path) -> None:
    """Every word of the environment, options with blanks in one piece."""
    java, *words = called(tmp_path, "executor", **SPARKS_WORDS)
    assert java == f"{tmp_path}/java"
    assert words[:4] == ["-Da=b c", "-Dd=$HOME", "-Xms1g", "-Xmx1g"]
    assert words[4:6] == ["-cp", "/spark/conf:/spark/jars/*"]
    options = dict(zip(words[7::2], words[8::2], strict=True))
    assert options == {
        "--driver-url": SPARKS_WORDS["SPARK_DRIVER_URL"],
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.2",
        "--resourceProfileId": "0",
        "--podName": "pod-3",
    }


def test_a_driver_is_a_spark_submit(tmp_path) -> None:
    """In client mode: the pod is the driver already."""
    words = called(tmp_path, "driver", "--properties-file", "p", "local:///a.py", **SPARKS_WORDS)
    assert words[0] == f"{tmp_path}/spark-submit"
    assert words[1:] == [
        *("--conf", "spark.driver.bindAddress=10.0.0.1", "--deploy-mode", "client"),
        *("--properties-file", "p", "local:///a.py"),
    ]


def test_anything_else_is_a_command(tmp_path) -> None:
    """As in the CronJob."""
    assert called(tmp_path, "echo", "a b") == ["a b"]
