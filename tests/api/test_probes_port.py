"""The port of the probes: probes and metrics without a login, and nothing else."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from snapreplay.api.guard import AT_PROBES_PORT
from snapreplay.api.server import HttpServer
from snapreplay.errors import UsageError
from snapreplay.service.config.groups import HttpSettings
from tests.api.test_tls import Authority
from tests.support.deadlines import scaled
from tests.support.fake_control import FakeControl

TOKEN = "0123456789abcdef" * 4


@asynccontextmanager
async def asked(settings: HttpSettings) -> AsyncIterator[tuple[httpx2.AsyncClient, httpx2.AsyncClient]]:
    """Clients of the main port and of the port of the probes, both without a token."""
    server = HttpServer()
    address = await server.serve(FakeControl(), settings)
    options: dict[str, Any] = {"trust_env": False, "verify": False, "timeout": scaled(10)}
    try:
        async with (
            httpx2.AsyncClient(base_url=address.url, **options) as main,
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{settings.probes_port}", **options) as probes,
        ):
            yield main, probes
    finally:
        await server.close()


async def test_probes_and_metrics_need_no_login_there_and_nothing_else_is_there(free_port: int, tmp_path: Path) -> None:
    """The main port still demands the token for metrics. At the other port every other path is a 404, also with the
    token, and nothing can be triggered."""
    (tmp_path / "tokens").write_text(TOKEN)
    settings = HttpSettings(port=0, probes_port=free_port, token_file=str(tmp_path / "tokens"))
    async with asked(settings) as (main, probes):
        found = {path: (await probes.get(path)).status_code for path in AT_PROBES_PORT}
        assert found == {"/healthz": 200, "/readyz": 503, "/startupz": 200, "/metrics": 200}
        assert "snapreplay_ready" in (await probes.get("/metrics")).text
        for path in ("/", "/openapi.json", "/api/v1", "/restore-status", "/static/x", "/metrics/", "/healthz/x"):
            for headers in ({}, {"Authorization": f"Bearer {TOKEN}"}):
                refused = await probes.get(path, headers=headers)
                assert refused.status_code == 404
                assert refused.headers["content-type"] == "application/problem+json"
                assert refused.json()["type"].endswith("not-at-this-port")
        assert (await probes.post("/trigger-snapshot", json={})).status_code == 404
        assert (await probes.post("/metrics")).status_code == 405
        assert (await main.get("/metrics")).status_code == 401
        assert (await main.get("/healthz")).status_code == 200
        assert (await main.get("/api/v1", headers={"Authorization": f"Bearer {TOKEN}"})).status_code == 200


async def test_the_probes_are_plain_http_where_the_api_has_tls(free_port: int, tmp_path: Path) -> None:
    """A prober has neither an authority nor a certificate. The main port answers by TLS only, and asks for one."""
    certificate, key = Authority(tmp_path, "any").signed("server")
    files: dict[str, Any] = {"tls_certificate_file": certificate, "tls_key_file": key, "client_ca_file": certificate}
    settings = HttpSettings(port=0, probes_port=free_port, **files)
    async with asked(settings) as (main, probes):
        assert (await probes.get("/metrics")).status_code == 200
        assert (await probes.get("/api/v1")).status_code == 404
        assert (await main.get("/metrics")).status_code == 403


async def test_a_port_that_is_taken_is_refused_by_its_setting() -> None:
    """The hint names the setting, and the port of the API is free again."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = HttpSettings(port=0, probes_port=taken.getsockname()[1])
        with pytest.raises(UsageError, match="is taken") as refused:
            HttpServer().bind(settings)
    assert "http.probes_port" in refused.value.hint
