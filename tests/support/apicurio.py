"""A real schema registry, Apicurio, which has Confluent's API: `make registry` has unpacked it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from snapreplay.devbroker.free_ports import free_ports
from snapreplay.java import environment, find_java
from tests.support.deadlines import scaled
from tests.support.waiting import eventually

FOLDER = Path(__file__).parents[2] / ".jars/apicurio"


@contextmanager
def apicurio(log: Path) -> Iterator[str]:
    """Its URL. It keeps its schemas in memory, and starts in about ten seconds."""
    jars = list(FOLDER.glob("*-runner.jar"))
    if not jars:
        pytest.skip("there is no schema registry: `make registry` gets one")
    (port,) = free_ports(1)
    command = [
        *(str(find_java("the schema registry")), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        *("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}", "-jar", str(jars[0])),
    ]
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=environment()) as process,
    ):
        try:
            eventually(lambda: process.poll() is not None or _answers(url), "an answer of the registry", scaled(60))
            assert process.poll() is None, log.read_text()[-2000:]
            yield url
        finally:
            process.kill()


def _answers(url: str) -> bool:
    with suppress(httpx2.HTTPError):
        return httpx2.get(f"{url}/subjects", timeout=5, trust_env=False).status_code == 200
    return False
