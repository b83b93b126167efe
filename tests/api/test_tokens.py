"""Tokens: the file, who needs one, and that nobody tells it."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from snapreplay.api.app import create_app
from snapreplay.api.cli.root import app as commands
from snapreplay.api.guard import WITHOUT_TOKEN
from snapreplay.api.server import HttpServer
from snapreplay.api.tokens import Tokens, tokens_in
from snapreplay.errors import UsageError
from snapreplay.service.config.groups import HttpSettings
from tests.api.test_app import OPERATIONS
from tests.support.fake_control import FakeControl, Local
from tests.support.served import control_of, http_processes, peer, served, until

FIRST, SECOND = "first-token-0123456789", "second-token-0123456789"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{FIRST}\n{SECOND}\n")
    return path


@pytest.fixture
def guarded(file: Path) -> TestClient:
    return TestClient(create_app(Local(FakeControl()), tokens=Tokens(str(file))), raise_server_exceptions=False)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=" ".join)
def test_everything_but_the_probes_needs_a_token(guarded, method, path):
    """Any line of the file will do. The refusal is a problem that says what is asked for."""
    path = re.sub(r"\{.*?\}", "0", path)
    answer = guarded.request(method, path)
    if path in WITHOUT_TOKEN:
        assert answer.status_code in (200, 503)
        return
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="snapreplay"'
    assert answer.json()["type"] == "urn:snapreplay:problem:no-token"
    for token in (FIRST, SECOND):
        assert guarded.request(method, path, headers=bearer(token)).status_code != 401


@pytest.mark.parametrize(
    "given",
    [*("Bearer", "Bearer ", f"Basic {FIRST}", FIRST, f"Bearer {FIRST[:-1]}", f"Bearer {FIRST}x"), "Bearer \u00e9" * 9],
)
def test_what_is_no_token_of_the_file_is_refused(guarded, given):
    """And not echoed."""
    answer = guarded.get("/restore-status", headers=[(b"Authorization", given.encode("latin-1"))])
    assert answer.status_code == 401
    assert FIRST[:-1] not in answer.text


def test_a_page_is_given_without_a_token(guarded):
    """A browser sends none when it opens it; what the page asks for needs one."""
    assert guarded.get("/").status_code == 200
    assert guarded.get("/openapi.json").status_code == 401


def test_a_changed_file_counts_at_once_and_a_broken_one_changes_nothing(file, caplog):
    """So a token is replaced without a restart, and never by nobody's."""
    tokens = Tokens(str(file))
    assert tokens.headers() == bearer(FIRST)
    file.write_text(f"{SECOND}\n")
    assert tokens.headers() == bearer(SECOND)
    assert not tokens.accept(f"Bearer {FIRST}")
    file.write_text("short\n")
    assert tokens.accept(f"Bearer {SECOND}")
    file.unlink()
    assert tokens.accept(f"bearer {SECOND}")
    assert "line 1 is no token" in caplog.text
    assert "the tokens from before stay" in caplog.text
    assert SECOND not in caplog.text


def test_without_a_file_there_no_token_opens_anything(tmp_path):
    """A file that is gone when the process starts is no reason to let everybody in."""
    tokens = Tokens(str(tmp_path / "none"))
    assert tokens.are_needed
    assert not tokens.accept("Bearer ")
    assert not tokens.accept("")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "holds no token"),
        (b"\n \n", "holds no token"),
        (b"hunter2\n", "line 1 is no token"),
        (b"two words that are long\n", "line 1 is no token"),
        (b"\xff\xfe" * 20, "cannot be read: it is no text"),
        (None, "cannot be read: No such file"),
    ],
)
async def test_a_file_of_no_use_is_refused_at_the_start(tmp_path, content, why):
    """By its name, without what it holds."""
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=why) as refused:
        await HttpServer().serve(FakeControl(), HttpSettings(port=0, token_file=str(path)))
    assert "hunter2" not in str(refused.value)
    (command,) = re.findall(r"`(openssl rand -hex 32) > ", refused.value.hint)
    path.write_bytes(await asyncio.to_thread(subprocess.check_output, command.split()))
    async with served(FakeControl(), HttpSettings(port=0, token_file=str(path))):
        pass


async def test_processes_with_one_file_follow_each_other_and_its_token_is_nowhere_to_be_seen(file):
    """Neither in the arguments nor in the environment of the HTTP process. One with another file is named, not
    suspected; so is one whose file has changed, until ours has."""
    other = file.with_name("other")
    other.write_text(f"{SECOND}x\n")
    mine = http_processes(os.getpid())
    with_token = HttpSettings(port=0, token_file=str(file), suspect_after_ms=2000)
    with_other = HttpSettings(port=0, token_file=str(other))
    one = control_of("p1")
    async with (
        served(control_of("p2"), with_token) as same,
        served(control_of("p3"), with_other) as differs,
        served(one, with_token) as url,
        httpx2.AsyncClient(base_url=url, trust_env=False, headers=bearer(SECOND)) as client,
    ):
        one.peers = (peer("p2", same), peer("p3", differs))

        async def rows() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = (await client.get("/api/v1/processes")).json()["items"]
            return found[1:]

        async def is_refused() -> bool:
            return "its token is another one" in (await rows())[1]["last_error"]

        async def are_reachable() -> bool:
            return [each["state"] for each in await rows()] == ["reachable", "reachable"]

        await until(is_refused, "the one with another token")
        assert (await rows())[1]["state"] == "unreachable"
        for each in http_processes(os.getpid()) - mine:
            assert not any(
                secret in " ".join([*each.cmdline(), *each.environ().values()]) for secret in (FIRST, SECOND)
            )
        other.write_text(f"{FIRST}\n")
        await until(are_reachable, "both have the token")
    assert one.suspected == []


async def test_commands_send_the_token_of_their_file(file, monkeypatch, tmp_path):
    """Of the option, or of the settings; without one the refusal says what to give."""
    monkeypatch.chdir(tmp_path)
    async with served(FakeControl(), HttpSettings(port=0, token_file=str(file))) as url:

        def run(*arguments: str) -> Any:
            return CliRunner().invoke(commands, ["restore-status", "--url", url, *arguments])

        refused = await asyncio.to_thread(run)
        assert refused.exit_code == 2
        assert "asks for a token" in refused.stderr
        assert "--token-file FILE" in refused.stderr
        assert (await asyncio.to_thread(run, "--token-file", str(file))).exit_code == 1
        (tmp_path / "snapreplay.toml").write_text(f'[http]\ntoken_file = "{file}"\n')
        assert (await asyncio.to_thread(run)).exit_code == 1
        file.write_text("short")
        assert (await asyncio.to_thread(run)).exit_code == 2


def test_tokens_of_a_file_are_its_lines(file):
    """Blank ones left out."""
    file.write_text(f"\n  {FIRST}  \n\n{SECOND}")
    assert tokens_in(file) == (FIRST, SECOND)
