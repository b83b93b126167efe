"""Tokens of an OpenID provider: whose are good, which role they give, and that nobody waits for the provider."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from snapreplay.api import oidc
from snapreplay.api.oidc import Verifier
from snapreplay.api.tokens import Asker, OidcProvider, Role
from snapreplay.service.config.groups import HttpSettings
from tests.api.test_tokens import FIRST, bearer, read_to_the_end
from tests.support.deadlines import scaled
from tests.support.fake_control import FakeControl
from tests.support.served import served, until
from tests.support.waiting import eventually

FETCH = 2
"""Questions for the keys: what the provider is, and its keys."""
KEY, STRANGER = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))


class Provider:
    """A provider of its own, on the loopback address: keys by id, and what it was asked."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {"one": KEY}
        self.asked: list[str] = []
        self.claims_to_be: str | None = None
        self.babbles = b""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked.append(self.path)
                if provider.babbles:
                    self.wfile.write(provider.babbles)
                    return
                body = json.dumps(provider.answer(self.path)).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Keep quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}/realm"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def settings(self) -> OidcProvider:
        return OidcProvider(self.issuer, "ledger", "realm.roles")

    def answer(self, path: str) -> object:
        if path.endswith("openid-configuration"):
            return {"issuer": self.claims_to_be or self.issuer, "jwks_uri": f"{self.issuer}/keys"}
        return {"keys": [self._public(name, key) for name, key in self.keys.items()]}

    def _public(self, name: str, key: Any) -> dict[str, Any]:
        is_rsa = isinstance(key, rsa.RSAPrivateKey)
        algorithm = jwt.algorithms.RSAAlgorithm if is_rsa else jwt.algorithms.ECAlgorithm
        made = algorithm.to_jwk(key.public_key(), as_dict=True)
        return {**made, "kid": name, "alg": "RS256" if is_rsa else "ES256", "use": "sig"}

    def token(
        self,
        key: str = "one",
        algorithm: str = "RS256",
        roles: object = ("snapreplay-operator",),
        signed_by: Any = None,
        **more: Any,
    ) -> str:
        claims = {"iss": self.issuer, "aud": "ledger", "sub": "ada", "exp": time.time() + 60, "realm": {"roles": roles}}
        claims = {name: value for name, value in {**claims, **more}.items() if value is not None}
        return jwt.encode(claims, signed_by or self.keys[key], algorithm=algorithm, headers={"kid": key})


@pytest.fixture(autouse=True)
def silent_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no verifier ask on: their threads never end, and would log in later tests that nobody answers."""
    made: list[Any] = []
    begin = Verifier.__init__

    def noted(self: Verifier, of: OidcProvider) -> None:
        made.append(self)
        begin(self, of)

    monkeypatch.setattr(Verifier, "__init__", noted)
    yield
    for each in made:
        each._fetch = lambda: True


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def verifier(provider: Provider) -> Verifier:
    """It has fetched the keys."""
    made = Verifier(provider.settings)
    eventually(lambda: made.asker(provider.token()) is not None)
    return made


@pytest.mark.parametrize(
    ("roles", "role"),
    [
        (["snapreplay-viewer", "other"], Role.VIEWER),
        ("snapreplay-admin", Role.ADMIN),
        (["snapreplay-viewer", "snapreplay-operator"], Role.OPERATOR),
        (["admin", "operator"], None),
        ([], None),
        ({"snapreplay-admin": True}, None),
        (None, None),
        ([["snapreplay-admin"], 7], None),
    ],
)
def test_the_highest_role_that_is_named_counts(provider, verifier, roles, role):
    """A role "admin" of the provider is of something else, perhaps."""
    asker = verifier.asker(provider.token(roles=roles))
    assert asker == (Asker("ada", role) if role else None)


@pytest.mark.parametrize(
    "change",
    [
        {"aud": "other"},
        {"aud": None},
        {"iss": "https://elsewhere"},
        {"iss": None},
        {"exp": 1},
        {"exp": None},
        {"sub": None},
        {"nbf": 2**33},
    ],
    ids=str,
)
def test_what_was_made_for_something_else_is_refused(provider, verifier, change):
    """Another service, another provider, another time, nobody."""
    assert verifier.asker(provider.token(**change)) is None


def test_a_forged_token_is_refused(provider, verifier):
    """Signed by somebody else, by nobody, with the public key as a shared secret, changed, cut, of any bytes."""
    good = provider.token(roles=["snapreplay-viewer"])
    public = provider.keys["one"].public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    head, body, signature = good.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    admin = {**claims, "realm": {"roles": ["snapreplay-admin"]}}

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    shared = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(admin)}"
    mac = base64.urlsafe_b64encode(hmac.digest(pem, shared.encode(), hashlib.sha256)).rstrip(b"=").decode()
    provider.keys["two"] = provider.keys["one"]
    for forged in (
        jwt.encode(admin, STRANGER, algorithm="RS256", headers={"kid": "one"}),
        jwt.encode(admin, "", algorithm="none", headers={"kid": "one"}),
        f"{shared}.{mac}",
        f"{head}.{part(admin)}.{signature}",
        f"{head}.{body}.",
        *("", ".", "..", good[:-9], good + "x", "\u00e9" * 40, f"{part([1])}.{body}.{signature}"),
        f"{part({'alg': 'RS256', 'kid': ['one']})}.{body}.{signature}",
    ):
        assert verifier.asker(forged) is None, forged
    assert verifier.asker(good) is not None


def test_the_provider_is_not_asked_for_each_key_that_somebody_names(provider, monkeypatch):
    """At most once a minute: whoever sends tokens decides what they name. A minute is a fifth of a second here."""
    monkeypatch.setattr(oidc, "AGAIN_SECONDS", 0.2)
    verifier = Verifier(provider.settings)
    eventually(lambda: verifier.asker(provider.token()) is not None)
    began, before = time.monotonic(), len(provider.asked)
    token = provider.token("two", "ES256", signed_by=ec.generate_private_key(ec.SECP256R1()))
    eventually(lambda: verifier.asker(token) is not None or len(provider.asked) >= before + 3 * FETCH)
    assert verifier.asker(token) is None
    assert time.monotonic() - began > 2 * oidc.AGAIN_SECONDS


def test_a_new_key_is_fetched_and_one_that_is_withdrawn_is_forgotten(provider, monkeypatch):
    """Without a request that names a new one, too."""
    monkeypatch.setattr(oidc, "AGAIN_SECONDS", 0.01)
    verifier = Verifier(provider.settings)
    eventually(lambda: verifier.asker(provider.token()) is not None)
    provider.keys = {"two": ec.generate_private_key(ec.SECP256R1())}
    token = provider.token("two", "ES256")
    eventually(lambda: verifier.asker(token) is not None)
    monkeypatch.setattr(oidc, "KEPT_SECONDS", 0.01)
    provider.keys = {"one": KEY}
    verifier.asker(provider.token())
    eventually(lambda: verifier.asker(provider.token()) is not None)
    assert verifier.asker(token) is None
    old = provider.token()
    provider.keys = {"three": STRANGER}
    eventually(lambda: verifier.asker(old) is None)


@pytest.mark.parametrize("why", ["away", "another"])
def test_a_provider_that_is_away_or_is_another_one_lets_nobody_in(provider, why, caplog):
    """Nobody waits, and the log says it."""
    if why == "away":
        provider.server.shutdown()
        provider.server.server_close()
    provider.claims_to_be = "https://elsewhere"
    verifier = Verifier(provider.settings)
    eventually(lambda: "were not fetched" in caplog.text)
    assert verifier.asker(provider.token()) is None


@pytest.mark.parametrize(
    "babbles",
    [
        b"no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
    ],
    ids=["no HTTP", "cut", "nested"],
)
def test_a_provider_whose_answer_is_none_is_asked_again(provider, babbles, monkeypatch, caplog):
    """Such as from a proxy before it, for a moment. Else a key that is withdrawn later would be good for ever."""
    monkeypatch.setattr(oidc, "AGAIN_SECONDS", 0.01)
    provider.babbles = babbles
    verifier = Verifier(provider.settings)
    eventually(lambda: "were not fetched" in caplog.text)
    provider.babbles = b""
    eventually(lambda: verifier.asker(provider.token()) is not None)


@asynccontextmanager
async def of_both(provider, folder: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a service that takes the token `FIRST` of a file and, by now, the tokens of the provider."""
    file = folder / "token"
    file.write_text(FIRST)
    settings = HttpSettings(
        port=0, token_file=str(file), oidc_issuer=provider.issuer, oidc_audience="ledger", oidc_role_claim="realm.roles"
    )
    async with served(FakeControl(), settings) as url, httpx2.AsyncClient(base_url=url) as client:

        async def is_known() -> bool:
            return (await client.get("/restore-status", headers=bearer(provider.token()))).status_code == 200

        await until(is_known, "the keys")
        yield client


async def test_a_service_takes_both_and_says_who_did_what(provider, tmp_path: Path, caplog):
    """A token of the file, and one of the provider, whose role decides."""
    caplog.set_level("INFO")
    async with of_both(provider, tmp_path) as client:
        viewer = bearer(provider.token(roles=["snapreplay-viewer"]))
        assert (await client.get("/restore-status", headers=viewer)).headers["snapreplay-role"] == "viewer"
        assert (await client.post("/trigger-snapshot", headers=viewer)).status_code == 403
        assert (await client.post("/trigger-snapshot", headers=bearer(provider.token()))).status_code == 202
        assert (await client.get("/restore-status", headers=bearer(FIRST))).headers["snapreplay-role"] == "admin"
        assert (await client.get("/restore-status", headers=bearer(provider.token(aud="x")))).status_code == 401
    assert "ada (operator): POST '/trigger-snapshot'" in caplog.text


async def test_a_stream_ends_when_its_token_expires(provider, tmp_path: Path):
    """Who goes on to read needs a new one."""
    async with of_both(provider, tmp_path) as client:
        token = provider.token(exp=time.time() - oidc.LEEWAY_SECONDS + scaled(2))
        assert await asyncio.wait_for(read_to_the_end(str(client.base_url), token, asyncio.Event()), scaled(30)) == 401
