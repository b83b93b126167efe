"""Verifies the tokens of an OpenID provider (JWT, RFC 7519 and 9068): who asks, and with which role."""

from __future__ import annotations

import json
import logging
import threading
import time
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import jwt

from snapreplay.api.tokens import Asker, OidcProvider, Role, escaped

log = logging.getLogger("snapreplay.http")

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
"""With public keys only: what verifies a token must not be able to make one."""
LEEWAY_SECONDS = 30
AGAIN_SECONDS = 60.0
"""Between two questions to the provider, whoever sends what."""
KEPT_SECONDS = 600.0
"""The keys are fetched again after so long; one that the provider has withdrawn is good until then."""
ANSWER_SECONDS, ANSWER_BYTES_MAX = 5.0, 1_000_000
ROLES = {f"snapreplay-{role.name.lower()}": role for role in Role}


class Verifier:
    """Verifies with the keys of a provider. They are fetched in a thread, so nobody waits for the provider: until they
    are there, its tokens are refused, and those of the file are good."""

    def __init__(self, provider: OidcProvider) -> None:
        self._provider = provider
        self._keys: Mapping[str, Any] = {}
        self._is_unknown = threading.Event()  # a token names a key that is not there
        threading.Thread(target=self._keep, name="snapreplay-oidc", daemon=True).start()

    def asker(self, token: str) -> Asker | None:
        """Say who has this token; None: it is not good here, or names no role. Does not block."""
        try:
            header = jwt.get_unverified_header(token)
            key = self._keys.get(str(header.get("kid", "")))
            if key is None:
                self._is_unknown.set()
                return None
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm_name] if key.algorithm_name in ALGORITHMS else [],
                audience=self._provider.audience,
                issuer=self._provider.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            log.debug("a token was refused: %s", error)
            return None
        role = _role(claims, self._provider.role_claim)
        return Asker(escaped(str(claims["sub"])[:64]), role) if role is not None else None

    def _keep(self) -> None:
        while True:
            self._is_unknown.clear()
            is_there = self._fetch()
            time.sleep(AGAIN_SECONDS)  # in a thread of its own: whoever sends tokens decides what they name
            if is_there:
                self._is_unknown.wait(KEPT_SECONDS - AGAIN_SECONDS)

    def _fetch(self) -> bool:
        issuer = self._provider.issuer
        try:
            found = _object_at(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
            if found["issuer"] != issuer:
                raise ValueError(f"it says that it is {found['issuer']!r}")
            keys = jwt.PyJWKSet.from_dict(_object_at(str(found["jwks_uri"]))).keys
            self._keys = {str(each.key_id or ""): each for each in keys}
        except Exception as error:  # noqa: BLE001 - whatever a provider answers, it is asked again
            log.warning("the keys of http.oidc_issuer=%s were not fetched: %s: %s", issuer, type(error).__name__, error)
            return False
        return True


def _object_at(url: str) -> dict[str, Any]:
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{url!r} is no URL of a server")
    with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:  # noqa: S310 - the scheme was looked at
        found = json.loads(answer.read(ANSWER_BYTES_MAX))
    if not isinstance(found, dict):
        raise TypeError(f"{url} answers with something else than an object")
    return found


def _role(claims: Mapping[str, Any], path: str) -> Role | None:
    """Return the highest of the roles that a claim names; None: it names none of ours."""
    found: Any = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    names: Iterable[Any] = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    return max((ROLES[name] for name in names if isinstance(name, str) and name in ROLES), default=None)
