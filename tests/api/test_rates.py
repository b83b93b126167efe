"""Rates: the bucket, who has which, and who is never limited."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
import pytest
from fastapi.testclient import TestClient

from snapreplay.api import page
from snapreplay.api.app import create_app
from snapreplay.api.problems import ProblemError
from snapreplay.api.rates import FAILED_LOGINS, KEPT_MAX, READS_ELSEWHERE, READS_OF_ALL, READS_OF_LOGS, Rate, Rates
from snapreplay.api.tokens import Tokens
from tests.api.test_tokens import FIRST, SECOND, bearer
from tests.support.fake_control import NOW, FakeControl, Local
from tests.support.served import peer, served, until

RATE = Rate("this", per_second=2, burst=3)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def control() -> FakeControl:
    """It knows of another process, which cannot be asked."""
    made = FakeControl()
    made.peers = (peer("p2", "http://127.0.0.1:1"),)
    return made


@pytest.fixture
def client(control, clock, tmp_path) -> TestClient:
    """Each of two viewers has a token."""
    file = tmp_path / "token"
    file.write_text(f"viewer:ada:{FIRST}\nviewer:eve:{SECOND}\n")
    source = Local(control)
    app = create_app(source, states=source, now=lambda: NOW, tokens=Tokens(str(file)), rates=Rates(clock=clock))
    return TestClient(app, raise_server_exceptions=False)


def test_a_bucket_empties_at_once_and_fills_slowly(clock):
    """After a burst each further one has to wait for its share; the error says for how long."""
    rates = Rates(clock=clock)
    for _ in range(3):
        rates.spend(RATE, "ada")
    with pytest.raises(ProblemError, match="asked too often for this: go on in 1 s, with at most 2 a second"):
        rates.spend(RATE, "ada")
    rates.spend(RATE, "eve")
    for _ in range(10):
        clock.now += 0.5
        rates.spend(RATE, "ada")
        with pytest.raises(ProblemError):
            rates.spend(RATE, "ada")
    clock.now += 60
    for _ in range(3):
        rates.spend(RATE, "ada")
    with pytest.raises(ProblemError):
        rates.spend(RATE, "ada")


def test_what_is_remembered_is_bounded(clock):
    """However many ask; whoever has waited is forgotten at once."""
    rates = Rates(clock=clock)
    for number in range(3 * KEPT_MAX):
        rates.spend(RATE, str(number))
    assert len(rates._full_at) == KEPT_MAX
    clock.now += 60
    rates.spend(RATE, "ada")
    assert len(rates._full_at) == 1


@pytest.mark.parametrize(
    ("path", "rate"),
    [
        ("/api/v1/partitions/0/history", READS_OF_LOGS),
        ("/api/v1/key-history/default/ada?partition=0", READS_OF_LOGS),
        ("/api/v1/savepoints", READS_OF_LOGS),
        ("/api/v1/savepoints/none", READS_OF_LOGS),
        ("/api/v1/last-hour?scope=app", READS_OF_ALL),
        ("/api/v1/state/default/ada?partition=5", READS_ELSEWHERE),
    ],
)
def test_who_asks_for_more_than_a_share_is_told_when_to_go_on(client, clock, path, rate):
    """429 with Retry-After; the others have shares of their own."""
    for _ in range(rate.burst):
        assert client.get(path, headers=bearer(FIRST)).status_code != 429
    refused = client.get(path, headers=bearer(FIRST))
    assert refused.status_code == 429
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["type"] == "urn:snapreplay:problem:asked-too-often"
    assert client.get(path, headers=bearer(SECOND)).status_code != 429
    clock.now += int(refused.headers["Retry-After"])
    assert client.get(path, headers=bearer(FIRST)).status_code != 429


@pytest.mark.parametrize("path", ["/api/v1/last-hour?scope=local", "/api/v1/state/default/ada?partition=5&scope=local"])
def test_what_processes_ask_each_other_is_never_limited(client, path):
    """They ask each for itself alone."""
    for _ in range(2 * READS_ELSEWHERE.burst):
        assert client.get(path, headers=bearer(FIRST)).status_code != 429


def test_an_answer_that_somebody_is_refused_is_nobody_elses(client, clock):
    """Answers are given again as long as nothing has happened: a refusal is not."""
    look, path = client.app.state.context[0].look, "/api/v1/partitions/0/history"
    kept = []

    async def same():
        kept.append(await look())
        return kept[0]

    client.app.state.context[0].look = same
    asked = [{"Accept": f"text/{number}"} for number in range(READS_OF_LOGS.burst + 1)]  # each is another answer
    answers = [client.get(path, headers={**bearer(FIRST), **each}) for each in asked]
    assert answers[-1].status_code == 429
    assert client.get(path, headers={**bearer(SECOND), **asked[-1]}).status_code == 200


def test_failed_logins_are_limited_by_address_and_a_good_one_is_good_all_the_same(client):
    """Another process of the app may be behind the same address. Who sends no token is asked for one, always."""
    answers = {
        client.get("/restore-status", headers=bearer(FIRST[::-1])).status_code for _ in range(FAILED_LOGINS.burst)
    }
    assert answers == {401}
    refused = client.get("/restore-status", headers=bearer(FIRST[::-1]))
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    assert client.get("/restore-status", headers=bearer(FIRST)).status_code == 200
    assert client.get("/restore-status").status_code == 401


def test_where_nobody_logs_in_an_address_has_a_share(clock):
    """Whatever it says of who has asked it."""
    source = Local(FakeControl())
    client = TestClient(create_app(source, states=source, now=lambda: NOW, rates=Rates(clock=clock)))
    for number in range(READS_OF_LOGS.burst):
        asked = client.get("/api/v1/savepoints", headers={"Snapreplay-Asker": str(number)})
        assert asked.status_code == 200
    assert client.get("/api/v1/savepoints", headers={"Snapreplay-Asker": "another"}).status_code == 429


def test_the_page_is_far_below(clock):
    """Four tabs at one address, each with twenty partitions opened, for an hour; and one whose token was revoked."""
    files = Path(page.__file__).with_name("static")
    (hour_ms,) = re.findall(r"AGAIN_MS = ([\d_]+)", (files / "hour.js").read_text())
    source = (files / "source.js").read_text()
    (period_ms,) = re.findall(r"PERIOD_MS = ([\d_]+)", source)
    questions = len(re.findall(r'^  \w+: "', source, re.MULTILINE))
    rates = Rates(clock=clock)
    for _ in range(3600 * 1000 // int(hour_ms)):
        for _ in range(4 * 21):
            rates.spend(READS_OF_ALL, "an office")
        clock.now += int(hour_ms) / 1000
    for _ in range(1000):
        for _ in range(2 * (questions + 1)):
            rates.spend(FAILED_LOGINS, "an office")
        clock.now += int(period_ms) / 1000


async def test_a_process_for_http_has_these_rates():
    """The one that a service starts."""
    async with served(FakeControl()) as url, httpx2.AsyncClient(base_url=url, trust_env=False) as client:

        async def is_refused() -> bool:
            return (await client.get("/api/v1/savepoints")).status_code == 429

        await until(is_refused, "it is too often")
        assert (await client.get("/restore-status")).status_code == 200


async def test_nobody_says_himself_where_he_is(caplog):
    """Else the log would name whom a request likes, and each request would have a share of its own."""
    caplog.set_level("INFO", "snapreplay.http")
    async with served(FakeControl()) as url, httpx2.AsyncClient(base_url=url, trust_env=False) as client:
        assert (await client.post("/trigger-snapshot", headers={"X-Forwarded-For": "ada"})).status_code == 202

        async def is_told() -> bool:
            return "POST '/trigger-snapshot'" in caplog.text

        await until(is_told, "who did what")
    assert "somebody at 127.0.0.1 (admin): POST '/trigger-snapshot'" in caplog.messages
