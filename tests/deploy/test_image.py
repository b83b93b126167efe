"""The Dockerfile: what can be known of it without Docker. `make docker` builds the image and runs it."""

import asyncio
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from snapreplay.service.config.groups import HttpSettings
from tests.api.test_tls import Authority
from tests.deploy.dockerfile import ROOT, command, last, named, stages
from tests.support.deadlines import scaled
from tests.support.fake_control import FakeControl
from tests.support.served import served

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
FINAL = stages(DOCKERFILE)[-1]
SPARK = named(DOCKERFILE, "spark")
ENTRYPOINT = ROOT / "deploy/spark-entrypoint.sh"


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
    """With the Python of the image, for any issuer of the certificate."""
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


def test_the_image_calls_the_entry_point() -> None:
    """It is copied, may be run, and its default command says what there is."""
    assert any(rest.split()[0] == "deploy/spark-entrypoint.sh" for word, rest in SPARK if word == "COPY")
    assert ENTRYPOINT.stat().st_mode & 0o111
    assert command(SPARK, "ENTRYPOINT") == ["/opt/entrypoint.sh"]
    assert command(SPARK, "CMD")[:2] == ["snapreplay", "audit"]
