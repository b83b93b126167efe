"""Tokens: the file, who needs one, and that it is never shown."""

import asyncio
import hashlib
import logging
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
from snapreplay.api.credentials import HttpTokens, tokens_in
from snapreplay.api.probing import WITHOUT_TOKEN
from snapreplay.api.server import HttpServer
from snapreplay.errors import UsageError
from snapreplay.service.config.groups import HttpSettings
from tests.api.conftest import Current
from tests.api.test_app import OPERATIONS
from tests.support.deadlines import scaled
from tests.support.fake_control import FakeControl, Local
from tests.support.served import LATE, control_of, peer, served, until

FIRST, SECOND = "first-token-0123456789", "second-token-0123456789"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{FIRST}\n{SECOND}\n")
    return path


@pytest.fixture
def guarded(file: Path) -> TestClient:
    return TestClient(create_app(Local(FakeControl()), tokens=HttpTokens(str(file))), raise_server_exceptions=False)


@pytest.fixture(scope="module")
def one_app(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Current, TestClient]:
    """The file, the control and a client of one app, for tests of many requests: to make an app takes long."""
    path, current = tmp_path_factory.mktemp("tokens") / "token", Current()
    path.write_text(FIRST)
    app = create_app(Local(current), tokens=HttpTokens(str(path)))
    return path, current, TestClient(app, raise_server_exceptions=False)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=" ".join)
def test_everything_but_the_probes_needs_a_token(one_app, method, path):
    """Any line of the file will do. The refusal is a problem that says what is asked for."""
    file, current, guarded = one_app
    file.write_text(f"{FIRST}\n{SECOND}\n")
    current.control = FakeControl()
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
def test_what_is_no_token_of_the_file_is_refused(guarded, given, caplog):
    """The log says from where, once a minute. The token is not echoed."""
    for _ in range(3):
        answer = guarded.get("/restore-status", headers=[(b"Authorization", given.encode("latin-1"))])
        assert answer.status_code == 401
        assert FIRST[:-1] not in answer.text
    (line,) = [each.getMessage() for each in caplog.records if each.name == "snapreplay.http"]
    assert line.startswith("refused GET '/restore-status' from testclient: ")
    assert FIRST[:-1] not in line


def test_a_changed_file_counts_at_once_and_a_broken_one_changes_nothing(file, caplog):
    """So a token is replaced without a restart, and never by an empty one."""
    tokens = HttpTokens(str(file))
    assert tokens.headers() == bearer(FIRST)
    file.write_text(f"{SECOND}\n")
    assert tokens.headers() == bearer(SECOND)
    assert not tokens.asker(f"Bearer {FIRST}")
    file.write_text("short\n")
    assert tokens.asker(f"Bearer {SECOND}")
    file.unlink()
    assert tokens.asker(f"bearer {SECOND}")
    assert "line 1 is not a token" in caplog.text
    assert "the previous content stays in use" in caplog.text
    assert SECOND not in caplog.text


def test_without_a_file_there_no_token_opens_anything(tmp_path):
    """A file that is gone when the process starts is no reason to let everybody in."""
    tokens = HttpTokens(str(tmp_path / "none"))
    assert tokens.are_needed
    assert not tokens.asker("Bearer ")
    assert not tokens.asker("")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "holds no token"),
        (b"\n \n", "holds no token"),
        (b"hunter2\n", "line 1 is not a token"),
        (b"two words that are long\n", "line 1 is not a token"),
        (b"\xff\xfe" * 20, "cannot be read: it is not text"),
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


async def test_processes_with_one_file_follow_each_other(file):
    """One with another file is named, not suspected; so is one whose file has changed, until ours has."""
    other = file.with_name("other")
    other.write_text(f"{SECOND}x\n")
    with_token = LATE.replaced(token_file=str(file))
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
            return "its token differs" in (await rows())[1]["last_error"]

        async def are_reachable() -> bool:
            return [each["state"] for each in await rows()] == ["reachable", "reachable"]

        await until(is_refused, "the one with another token")
        assert (await rows())[1]["state"] == "unreachable"
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
        missing = await asyncio.to_thread(run, "--token-file", "missing")
        assert (missing.exit_code, "`--token-file FILE`" in missing.stderr, "openssl" in missing.stderr) == (
            2,
            True,
            False,
        )


async def read_to_the_end(url: str, token: str, read: asyncio.Event) -> int:
    """Follow the events of a service, and return the status of the same question after their end."""
    async with httpx2.AsyncClient(base_url=url, trust_env=False, headers=bearer(token), timeout=None) as client:
        async with client.stream("GET", "/api/v1/events") as events:
            async for _ in events.aiter_bytes():
                read.set()
        return (await client.get("/restore-status")).status_code


@pytest.mark.parametrize(("now", "status"), [("", 401), (f"viewer:ada:{FIRST}", 200), (f"admin:eve:{FIRST}", None)])
async def test_a_stream_ends_when_its_token_is_revoked_or_gets_another_role(file, now, status):
    """The reader asks again, and is refused or hears its role. Other readers continue, and so does one whose role is
    the same."""
    async with served(FakeControl(), HttpSettings(port=0, token_file=str(file))) as url:
        read = [asyncio.Event(), asyncio.Event()]
        tokens = [FIRST, SECOND]
        mine, others = (asyncio.create_task(read_to_the_end(url, *each)) for each in zip(tokens, read, strict=True))
        for each in read:
            await asyncio.wait_for(each.wait(), scaled(30))
        file.write_text(f"{now}\n{SECOND}\n")
        if status is not None:
            assert await asyncio.wait_for(mine, scaled(30)) == status
        for _ in range(4):  # twice a second something comes
            read[1].clear()
            await asyncio.wait_for(read[1].wait(), scaled(30))
        assert not others.done()
        assert mine.done() == (status is not None)
        for reader in (mine, others):
            reader.cancel()
        await asyncio.wait([mine, others])


ROLES = ("viewer", "operator", "admin")
NEEDED = {
    ("POST", "/trigger-snapshot"): "operator",
    ("POST", "/api/v1/partitions/{partition}/retry"): "operator",
    ("POST", "/api/v1/partitions/{partition}/pause"): "operator",
    ("POST", "/api/v1/partitions/{partition}/drill"): "operator",
    ("POST", "/api/v1/partitions/{partition}/resume"): "operator",
    ("POST", "/api/v1/partitions/{partition}/adopt"): "admin",
    ("POST", "/api/v1/processes/{process_id}/drain"): "operator",
    ("POST", "/api/v1/processes/{process_id}/undrain"): "operator",
    ("DELETE", "/api/v1/operations/{operation_id}"): "operator",
    ("POST", "/api/v1/savepoints"): "operator",
    ("DELETE", "/api/v1/savepoints/{name}"): "admin",
    ("POST", "/api/v1/dead-letters/redrive"): "operator",
}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=" ".join)
def test_each_role_may_do_what_it_may(one_app, role, method, path):
    """Every request that does something is in the table; a new request is an admin's until it is."""
    file, current, client = one_app
    hashed = hashlib.sha256(FIRST.encode()).hexdigest()
    file.write_text(f"admin:{SECOND}\n{role}:ada:sha256:{hashed}\n")
    current.control = FakeControl()
    answer = client.request(method, re.sub(r"\{.*?\}", "0", path), headers=bearer(FIRST))
    needed = NEEDED.get((method, path), "viewer" if method in ("GET", "HEAD") else "admin")
    is_refused = answer.status_code == 403
    assert is_refused == (ROLES.index(role) < ROLES.index(needed))
    if not is_refused:
        told = None if path in WITHOUT_TOKEN or answer.status_code >= 500 else role
        assert answer.headers.get("Snapreplay-Role") == told
    else:
        assert answer.json()["type"] == "urn:snapreplay:problem:role-too-low"
        (line,) = re.findall(r"`(\w+:)`", answer.json()["hint"])
        file.write_text(f"{line}{FIRST}")
        again = client.request(method, re.sub(r"\{.*?\}", "0", path), headers=bearer(FIRST))
        assert again.status_code not in (403, 500)


@pytest.mark.parametrize(
    ("line", "name", "role"),
    [
        (FIRST, "line 1", "admin"),
        (f"viewer:{FIRST}", "line 1", "viewer"),
        (f"operator:ada@night:{FIRST}", "ada@night", "operator"),
        ("sha256:HASH", "line 1", "admin"),
        ("operator:sha256:HASH", "line 1", "operator"),
        ("viewer:ada:sha256:HASH", "ada", "viewer"),
    ],
)
def test_a_line_has_role_name_and_token_or_hash(file, line, name, role):
    """Who has read a hash has no token; only the token of an admin is sent to the other processes."""
    hashed = hashlib.sha256(FIRST.encode()).hexdigest()
    file.write_text(line.replace("HASH", hashed))
    tokens = HttpTokens(str(file))
    asker = tokens.asker(f"Bearer {FIRST}")
    assert asker is not None
    assert (asker.name, asker.role.name.lower()) == (name, role)
    assert tokens.asker(f"Bearer {hashed}") is None
    assert tokens.asker(f"Bearer sha256:{hashed}") is None
    assert tokens.headers() == (bearer(FIRST) if role == "admin" and "HASH" not in line else {})


@pytest.mark.parametrize(
    "line", [f"root:{FIRST}", f"admin:a b:{FIRST}", "admin:sha256:abc", "viewer:", f"Admin:{FIRST}"]
)
def test_a_line_of_another_form_is_refused(file, line):
    """By its number, without what it holds."""
    file.write_text(line)
    with pytest.raises(UsageError, match="line 1 is not a token") as refused:
        tokens_in(file)
    assert FIRST not in refused.value.message


def test_a_token_in_two_lines_is_refused(file):
    """Also where one of them has its hash: which role counts would not be certain."""
    file.write_text(f"viewer:{FIRST}\nadmin:sha256:{hashlib.sha256(FIRST.encode()).hexdigest()}\n")
    with pytest.raises(UsageError, match="a token in two lines"):
        tokens_in(file)


async def test_the_log_says_who_did_what_and_no_token(file, caplog, monkeypatch, tmp_path):
    """What was done, and what a role does not allow; roles change without a restart. An unknown token is in no
    log either."""
    caplog.set_level(logging.INFO, "snapreplay.http")
    monkeypatch.chdir(tmp_path)
    hashed = hashlib.sha256(FIRST.encode()).hexdigest()
    file.write_text(f"operator:ada:{FIRST}\nadmin:{SECOND}\n")
    control = FakeControl()
    async with (
        served(control, HttpSettings(port=0, token_file=str(file))) as url,
        httpx2.AsyncClient(base_url=url, trust_env=False) as client,
    ):

        async def post() -> int:
            return (await client.post("/trigger-snapshot", headers=bearer(FIRST))).status_code

        async def is_reported() -> bool:
            return "ada (viewer) may not POST '/trigger-snapshot'" in caplog.text

        assert await post() == 202
        assert (await client.get("/restore-status", headers=bearer(FIRST[::-1]))).status_code == 401
        file.write_text(f"viewer:ada:sha256:{hashed}\n")
        assert await post() == 403
        await until(is_reported, "the refusal is logged")
        only_hash = ["restore-status", "--url", url, "--token-file", str(file)]
        answer = await asyncio.to_thread(CliRunner().invoke, commands, only_hash)
        assert (answer.exit_code, "`--token-file FILE`" in answer.stderr) == (2, True)
    assert "ada (operator): POST '/trigger-snapshot'" in caplog.text
    assert not any(secret in caplog.text for secret in (FIRST, SECOND, FIRST[::-1], hashed))
