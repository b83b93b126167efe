"""The requests that are refused before anybody looks at them: from a page of another site, with two lengths, without
a token.

A browser sends what any page tells it to, also to a service on the same machine or behind a firewall. It adds the
name that the page knows the service by (Host) and the site of the page (Origin).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from snapreplay.api import page, problems
from snapreplay.api.tokens import Tokens

_READS = {"GET", "HEAD", "OPTIONS"}
_OF_THE_SAME_SITE = {"same-origin", "none"}


class Hosts(NamedTuple):
    """The names that a service may be called by when it is to do something."""

    bound: str = ""
    allowed: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """Say whether the service may be called so: an address and a name without a dot are never the name of a
        foreign site, so they need not be listed."""
        name = name.rstrip(".").lower()
        if "." not in name or name.endswith(".localhost") or name in (self.bound, *self.allowed):
            return True
        return _is_address(name)


def allowed_hosts(setting: str) -> tuple[str, ...]:
    """Return the names in `http.allowed_hosts`."""
    return tuple(name.strip().lower() for name in setting.split(",") if name.strip())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def refusal(method: str, headers: Mapping[str, str], hosts: Hosts) -> problems.ProblemError | None:
    """Say why the request is refused; None: it is not. The names of `headers` are lower case."""
    if "content-length" in headers and "transfer-encoding" in headers:
        return problems.ProblemError(
            problems.TWO_LENGTHS,
            "the request has Content-Length and Transfer-Encoding: where it ends is not certain",
            headers={"Connection": "close"},
        )
    if method in _READS:
        return None
    host, origin = headers.get("host", ""), headers.get("origin")
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return _malformed("Host", host)
    if not hosts.has(name):
        return problems.ProblemError(
            problems.FOREIGN_HOST,
            f"this service is not known as {name[:200]!r} (Host)",
            hint=f"ask it by its address, or set http.allowed_hosts={name[:200]}",
        )
    try:
        is_ours = origin is None or urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return _malformed("Origin", origin or "")
    if not is_ours or headers.get("sec-fetch-site", "none") not in _OF_THE_SAME_SITE:
        return problems.ProblemError(
            problems.FOREIGN_ORIGIN,
            f"a page of {(origin or 'another site')[:200]!r} may not ask this service to do anything",
            hint="ask with curl or with `snapreplay`, which send no Origin",
        )
    media = headers.get("content-type")
    if media is not None and not _is_json(media):
        return problems.wrong_media(media)
    return None


def _malformed(name: str, value: str) -> problems.ProblemError:
    return problems.ProblemError(problems.MALFORMED_HEADER, f"{name} is no address: {value[:200]!r}")


def _is_json(media: str) -> bool:
    kind = media.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


WITHOUT_TOKEN = ("/healthz", "/readyz", "/startupz")
"""A platform's probes have none."""


class Guard:
    """ASGI middleware that answers what `refusal` refuses, and what comes without a token where one is needed."""

    def __init__(self, app: ASGIApp, hosts: Hosts, tokens: Tokens) -> None:
        self._app = app
        self._hosts = hosts
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = refusal(scope["method"], headers, self._hosts) or self._without_token(scope["path"], headers)
        if refused is None:
            await self._app(scope, receive, send)
        else:
            await problems.response(refused, scope["path"])(scope, receive, send)

    def _without_token(self, path: str, headers: Headers) -> problems.ProblemError | None:
        # A browser that opens the page sends no header. The page knows nothing; it asks for the token.
        if not self._tokens.are_needed or path in WITHOUT_TOKEN or page.owns(path):
            return None
        given = headers.get("authorization", "")
        return None if self._tokens.accept(given) else problems.no_token(given)
