"""Logins by tokens of the user's own provider (SASL OAUTHBEARER), on a real broker where each login ends soon."""

import asyncio
import logging
import re
import sys
import threading
from typing import Any

import pytest

from snapreplay.errors import UsageError
from snapreplay.service.config.settings import Settings, effective
from snapreplay.service.core.kafka_errors import NotAuthenticated
from snapreplay.service.kafka import connection, tokens
from snapreplay.service.kafka.shared import Client, Shared
from snapreplay.service.kafka.tokens import TokenFailure, tokens_of
from tests.service.kafka.test_refusals import patient, refusal
from tests.service.test_access import Restricted, here, not_ready
from tests.support import apps
from tests.support.deadlines import scaled
from tests.support.guarded import Guarded, token
from tests.support.stage import until

__all__ = ["here", "patient"]

RENEWALS = 4
MODULE = """
from tests.support.guarded import token
from tests.service.kafka.test_tokens import Provider
class ByClass:
    async def token(self):
        return token(60)
def made():
    return ByClass()
def raises():
    raise RuntimeError("no such issuer")
def nothing(): ...
shared = Provider(seconds=60)
number = 7
"""


class Provider:
    """Gives a token of a short life, or what a test wants."""

    def __init__(self, given: Any = None, seconds: float | None = None) -> None:
        self.given = given
        self.seconds = seconds or min(scaled(4), 12)  # longer than a process pauses
        self.told: list[str] = []
        self.threads: set[str] = set()

    async def token(self) -> Any:
        self.threads.add(threading.current_thread().name)
        if self.given is not None:
            return await self.given()
        self.told.append(token(self.seconds))
        return self.told[-1]

    def extensions(self) -> dict[str, str]:
        return {"traceId": "7"}


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that has providers."""
    (tmp_path / "our_auth.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield "our_auth"
    sys.modules.pop("our_auth", None)


class ByTokens(Restricted):
    """An app whose service logs in by tokens."""

    def __init__(self, broker: Guarded, app, provider: object) -> None:
        super().__init__(broker, app)
        self.provider = provider

    def settings(self, **tables):
        return super().settings(**{"kafka": self.broker.by_tokens(self.provider), **tables})


async def raises():
    """Fail as an issuer that cannot be reached."""
    raise ConnectionError("the issuer does not answer")


async def hangs():
    """Never answer."""
    await asyncio.Event().wait()


async def nothing():
    """Forget to return a token."""


async def with_line_end():
    """Return the text of a file as it is."""
    return token(60) + "\n"


@pytest.mark.kafka
@pytest.mark.whole
async def test_a_service_continues_while_its_logins_end(here, unique, caplog):
    """Each connection is exchanged before its login ends, so nothing breaks: no commit, no fetch, no heartbeat. The
    provider is called in a thread of its own. No token is logged at any level, or shown in the settings."""
    provider = Provider()
    stage = await ByTokens(here, apps.ledger(unique("renewed")), provider).allowed()
    caplog.set_level(logging.INFO, logger="snapreplay.partition")
    caplog.set_level(logging.DEBUG, logger=connection.__name__)  # the last one is for all
    loop = asyncio.get_running_loop()
    async with stage.running() as service:
        began = loop.time()
        while loop.time() < began + RENEWALS * provider.seconds:
            await stage.feed(20)
            await stage.assert_exactly_once(service)
        assert service.restore_status()[0].restore.attempts == 1
    broken = [each.getMessage() for each in caplog.records if each.levelno > logging.DEBUG]
    # Without the exchange it is one after each life. A busy machine may miss one.
    assert len([each for each in broken if "a connection broke" in each]) < RENEWALS - 1, broken
    assert len(provider.told) > 3 * RENEWALS
    assert provider.threads == {"snapreplay-tokens"}
    logged = caplog.text + repr(effective(stage.settings()))
    assert "SaslAuthenticateRequest" in logged
    assert "test_tokens.Provider" in logged
    assert not [each for each in provider.told if each in logged]


@pytest.mark.whole
@pytest.mark.kafka
async def test_a_provider_that_is_repaired_heals_the_service(here, unique, monkeypatch):
    """What is wrong with it is named in the readiness with the cause and what to do, and nothing is FAILED. As soon as
    it returns tokens again, the same process continues. At a start it is named at once."""
    provider = Provider()
    stage = await ByTokens(here, apps.ledger(unique("repaired")), provider).allowed()
    async with stage.running() as service:
        for given, said in ((raises, "raised ConnectionError: the issuer does not answer"),):
            provider.given = given
            refused = await stage.refused()
            assert isinstance(refused, NotAuthenticated), said
            named = rf"the token provider tests\.service\.kafka\.test_tokens\.Provider {said}"
            assert re.fullmatch(named, refused.message)
            assert "its token() must return the token as a str within" in refused.hint
            await until(lambda: re.search(named, not_ready(service)), said)  # noqa: B023 - awaited here
            assert [s.phase for s in service.restore_status() if s.phase == "failed"] == []
            provider.given = None
            await until(service.control.ready, f"ready again after: {said}")
            await stage.feed(20)
            await stage.assert_exactly_once(service)


@pytest.mark.kafka
async def test_a_token_that_the_broker_refuses_is_reported_with_its_reason(here):
    """The client itself takes it for accepted. The provider is named, the token is not."""
    provider = Provider(seconds=-60.0)
    refused = await refusal(Settings(kafka=here.by_tokens(provider)))
    assert refused is not None
    said = rf"the broker at {here.tokens} denies access: it refuses the token of tests\S+\.Provider: \S+"
    assert re.match(said, refused.message)
    assert "not expired" in refused.hint
    assert provider.told[-1] not in refused.message
    provider.seconds = 60.0
    assert await refusal(Settings(kafka=here.by_tokens(provider))) is None


@pytest.mark.kafka
async def test_a_connection_stays_while_no_token_can_be_had(here):
    """Until its login ends. With a token again, another one takes over."""
    provider = Provider(seconds=60.0)
    client = Client(Shared(Settings(kafka=here.by_tokens(provider))))
    await client.start()
    try:
        node = await client.anybody()
        (first,) = client._held.values()
        assert await client.ready(node)
        assert [*client._held.values()] == [first]
        first._due_at = 0.0
        provider.given = raises
        assert await client.ready(node)
        assert [*client._held.values()] == [first]
        assert not first.is_due
        provider.given, first._due_at = None, 0.0
        assert await client.ready(node)
        (second,) = client._held.values()
        assert second is not first
        assert not first.is_open
        assert await client.ready(node)
        assert [*client._held.values()] == [second]
    finally:
        await client.close()


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("absent", "has no attribute 'absent'"),
        ("number", "a int is not a provider, and does not return one"),
        ("raises", "it raised RuntimeError: no such issuer"),
        ("nothing", r"it returned NoneType, which has no method token\(\)"),
    ],
)
def test_what_is_no_provider_is_refused_by_its_name(module, attribute, said):
    """With the reason. An object, a class and a function that returns one are accepted, as the hint says."""
    with pytest.raises(UsageError, match=f"kafka.sasl.oauth.token.provider={module}:{attribute}: .*{said}") as refused:
        tokens_of(named(f"{module}:{attribute}"))
    assert "an object with a method token()" in refused.value.hint
    for right in ("shared", "ByClass", "made"):
        assert tokens_of(named(f"{module}:{right}")) is tokens_of(named(f"{module}:{right}"))


def named(provider: object) -> Settings:
    """Make settings with this provider."""
    access = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    return Settings(kafka={**access, "sasl.oauth.token.provider": provider})


@pytest.mark.parametrize("given", ["eyJhbGciOiJub25lIn0.e30.", "our_auth", ":made", 7, Provider])
def test_what_names_no_provider_is_refused_and_not_shown(given):
    """It may be a token."""
    with pytest.raises(UsageError, match="give `module:factory`") as refused:
        named(given)
    assert str(given) not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (raises, "raised ConnectionError: the issuer does not answer"),
        (nothing, "returned NoneType as its token, not str"),
        (with_line_end, "returned a str with characters that a bearer token cannot have, such as a newline"),
    ],
)
async def test_what_a_provider_does_wrong_is_said(given, said):
    asked = tokens_of(named(Provider(given)))
    assert asked is not None
    with pytest.raises(TokenFailure, match=f"Provider {said}$"):
        await asked.token()


async def test_a_provider_that_blocks_delays_no_other_login(monkeypatch):
    """Functions that are no coroutines are called in that thread, too."""
    monkeypatch.setattr(tokens, "TOKEN_SECONDS", 0.2)
    blocked = threading.Event()

    class Blocking:
        def token(self) -> str:
            blocked.wait()
            return "a-token"

    asked = tokens_of(named(Blocking()))
    assert asked is not None
    with pytest.raises(TokenFailure, match=r"gave no token within 0\.2 s"):
        await asked.token()
    blocked.set()
    monkeypatch.setattr(tokens, "TOKEN_SECONDS", 30.0)
    assert await asked.token() == "a-token"
    assert asked.extensions() == {}
