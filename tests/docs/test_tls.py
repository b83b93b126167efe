"""docs/tls.md, block by block, on a real broker with the certificates, listeners and settings of the page."""

import asyncio
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from snapreplay import load_settings, running
from snapreplay.api.cli.root import app as commands
from snapreplay.app.load import load_app
from snapreplay.devbroker.free_ports import free_ports
from snapreplay.devbroker.properties import Node
from tests.support import kafka_tools
from tests.support.deadlines import scaled
from tests.support.guarded import token
from tests.support.local_cluster import LocalCluster

pytestmark = [pytest.mark.kafka, pytest.mark.whole]

PAGE = Path(__file__).parents[2] / "docs" / "tls.md"
PORTS = ("9092", "9093", "9094", "9095", "9096")
LEDGER = """
from snapreplay import App, MapState, Topic
payments = Topic("payments")
app = App("ledger", inputs=[payments], state=lambda: MapState(str, int, default=int))
@app.handler(payments)
def on_payment(record, state, out):
    state[record.key] += record.value["amount"]
"""


@pytest.fixture
def blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """(language, text) of each, in their order, with ports that are free, in a directory with the app."""
    (tmp_path / "ledger.py").write_text(LEDGER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    text = PAGE.read_text(encoding="utf-8")
    for port, free in zip(PORTS, free_ports(len(PORTS)), strict=True):
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free}")
    yield re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for name in ("ledger", "our_auth"):
        sys.modules.pop(name, None)


def cluster(properties: str, folder: Path) -> LocalCluster:
    given = dict(line.split("=", 1) for line in properties.splitlines())
    for name in ("ssl.keystore.location", "ssl.truststore.location"):
        given[name] = str(folder / given[name])
    ports = dict(re.findall(r"(\w+)://127\.0\.0\.1:(\d+)", given["listeners"]))
    node = Node(1, int(ports["PLAINTEXT"]), int(ports["CONTROLLER"]))
    return LocalCluster(1, nodes=[node], properties=given, deadline_s=scaled(60))


def typed(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Type as a person does: variables, commands, and what is piped into one."""
    for line in block.splitlines():
        if line.startswith("export "):
            monkeypatch.setenv(*line.removeprefix("export ").split("=", 1))
            continue
        piped, _, command = line.rpartition(" | ")
        stdin = " ".join(shlex.split(piped)[1:])
        words = shlex.split(command)[1:]
        done = CliRunner().invoke(commands, words, input=stdin, prog_name="snapreplay")
        # One broker without replicas is a finding of `doctor`; access must be none.
        assert done.exit_code in ({0, 1} if words[0] == "doctor" else {0}), (line, done.output)
        assert "access" not in done.output, done.output


def state_after_a_run(config: str) -> dict[Any, Any]:
    async def run() -> dict[Any, Any]:
        async with running(load_app("ledger.py"), load_settings(config_file=Path(config))) as service:
            await service.wait_caught_up(scaled(60))
            return dict(service.view(0))

    return asyncio.run(run())


def test_the_page_about_tls_is_true(blocks, tmp_path, monkeypatch):
    """By a certificate with an encrypted key, by a user and a password, by a token: one app, one state."""
    languages = [language for language, _ in blocks]
    assert languages == ["sh", "properties", "sh", "toml", "sh", "toml", "sh", "python", "toml", "sh"]
    certificates, broker, user, mtls, first, users, second, provider, by_token, third = (text for _, text in blocks)
    subprocess.run(["bash", "-euc", certificates], check=True, capture_output=True, cwd=tmp_path)
    (tmp_path / "mtls.toml").write_text(mtls)
    (tmp_path / "users.toml").write_text(users)
    (tmp_path / "our_auth.py").write_text(provider)
    (tmp_path / "tokens.toml").write_text(by_token)
    (tmp_path / "token.jwt").write_text(f"{token(600, 'ledger')}\n")
    with cluster(broker, tmp_path):
        kafka_tools.run(shlex.split(user))
        typed(first, monkeypatch)
        assert state_after_a_run("mtls.toml") == {"ada": 5}
        monkeypatch.delenv("SNAPREPLAY_KAFKA__SSL_PASSWORD")
        typed(second, monkeypatch)
        assert state_after_a_run("users.toml") == {"ada": 12}
        monkeypatch.delenv("SNAPREPLAY_KAFKA__SASL_PLAIN_PASSWORD")
        typed(third, monkeypatch)
        assert state_after_a_run("tokens.toml") == {"ada": 15}
