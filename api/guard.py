"""The requests that are refused before anybody looks at them: from a page of another site, with two lengths, without
a token.

A browser sends what any page tells it to, also to a service on the same machine or behind a firewall. It adds the
name that the page knows the service by (Host) and the site of the page (Origin).
"""

from __future__ import annotations

import ipaddress
import logging
import re
import time
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from snapreplay.api import page, problems
from snapreplay.api.credentials import Asker, HttpTokens, escaped
from snapreplay.api.probing import WITHOUT_TOKEN
from snapreplay.api.serving import CERTIFICATE, PROBES_PORT
from snapreplay.service.control.operations import COMMANDS, Role
from snapreplay.service.core.repeats import Repeats

log = logging.getLogger("snapreplay.http")

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
    return tuple(name.strip().lower() for name in setting.split(",") if name.strip())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def refusal(
    method: str, headers: Mapping[str, str], hosts: Hosts, *, is_public: bool = True
) -> problems.ProblemError | None:
    """Say why the request is refused; None: it is not. The names of `headers` are lower case.

    Args:
        is_public: whether the path may be read by any name of this service, also by one of a foreign site.
    """
    if "content-length" in headers and "transfer-encoding" in headers:
        return problems.ProblemError(
            problems.TWO_LENGTHS,
            "the request has Content-Length and Transfer-Encoding: its end is ambiguous",
            headers={"Connection": "close"},
        )
    if method in _READS and is_public:
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
    if method in _READS:
        return None
    try:
        is_ours = origin is None or urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return _malformed("Origin", origin or "")
    if not is_ours or headers.get("sec-fetch-site", "none") not in _OF_THE_SAME_SITE:
        return problems.ProblemError(
            problems.FOREIGN_ORIGIN,
            f"a page of {(origin or 'another site')[:200]!r} may not send commands to this service",
        )
    media = headers.get("content-type")
    if media is not None and not _is_json(media):
        return problems.wrong_media(media)
    return None


def _malformed(name: str, value: str) -> problems.ProblemError:
    return problems.ProblemError(problems.MALFORMED_HEADER, f"{name} is not an address: {value[:200]!r}")


def _is_json(media: str) -> bool:
    kind = media.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


AT_PROBES_PORT = (*WITHOUT_TOKEN, "/metrics")
"""All that `http.probes_port` has."""


ASKER = "snapreplay.asker"
"""The key of a request's scope for the name of the client."""
IS_STILL_KNOWN = "snapreplay.is_still_known"
"""The key for a function that says whether the login of the request is still good, with the same role."""
ASKER_HEADER = "Snapreplay-Asker"
"""The name of the client of the process that passes a request on. Only an admin is believed; processes are admins."""

ROLE_HEADER = b"snapreplay-role"
"""Tells the page which buttons are of use."""

_ROLES = [(each.method, re.compile(re.sub(r"{\w+}", "[^/]+", each.path)), each.role) for each in COMMANDS]


def least_role(method: str, path: str) -> Role:
    """Return the role that a request needs. What is no command is an admin's."""
    if method in _READS:
        return Role.VIEWER
    needed = (role for of, pattern, role in _ROLES if of == method and pattern.fullmatch(path))
    return next(needed, Role.ADMIN)


class Guard:
    """ASGI middleware that answers what `refusal` refuses, and what comes without a login where one is needed."""

    def __init__(self, app: ASGIApp, hosts: Hosts, tokens: HttpTokens, path: str = "") -> None:
        """Take `path`, below which `app` is served."""
        self._app = app
        self._path = path
        self._hosts = hosts
        self._tokens = tokens
        self._refused = Repeats()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method, path, headers = scope["method"], scope["path"], Headers(scope=scope)
        at_probes_port = PROBES_PORT in scope.get("state", {})
        asker = None if at_probes_port else self._asker(scope, headers)
        refused = refusal(method, headers, self._hosts, is_public=self._is_public(path))
        if refused is None and isinstance(asker, problems.ProblemError):
            refused = asker
            self._say_refused(scope, f"{method} {path!a:.200s}", asker)
        if at_probes_port and path not in AT_PROBES_PORT:
            has = "this port (http.probes_port) has /healthz, /readyz, /startupz and /metrics only"
            refused = problems.ProblemError(problems.OTHER_PORT, has)
        if isinstance(asker, Asker) and refused is None and asker.role < (needed := least_role(method, path)):
            log.warning("%s (%s) may not %s %.200s", asker.name, asker.role.name.lower(), method, ascii(path))
            refused = problems.role_too_low(asker.role.name.lower(), needed.name.lower())
        if refused is not None:
            await problems.response(refused, self._path + path)(scope, receive, send)
            return

        if isinstance(asker, Asker):
            passed_on = headers.get(ASKER_HEADER, "")[:200] if asker.role is Role.ADMIN else ""
            scope[ASKER] = passed_on or asker.name
            scope[IS_STILL_KNOWN] = partial(self._is_still_known, scope, headers, asker.role)

        async def send_with_role(message: Message) -> None:
            if message["type"] == "http.response.start" and isinstance(asker, Asker):
                role = asker.role.name.lower()
                message = {**message, "headers": [*message["headers"], (ROLE_HEADER, role.encode())]}
                if method not in _READS and message["status"] < 400:
                    log.info("%s (%s): %s %.200s", asker.name, role, method, ascii(path))
            await send(message)

        await self._app(scope, receive, send_with_role)

    def _is_public(self, path: str) -> bool:
        """Say whether this path may be read by any name: a foreign page has neither a token nor a certificate, and some
        answers have nothing of the app's data."""
        return self._tokens.are_needed or self._tokens.needs_certificate or path in AT_PROBES_PORT or page.owns(path)

    def _say_refused(self, scope: Scope, asked: str, why: problems.ProblemError) -> None:
        now = time.monotonic()
        address = (scope.get("client") or ("?",))[0]
        self._refused.forget(now)
        said = self._refused.met((address, why.kind.name), now)
        if said is not None:
            log.warning("refused %s from %s: %s%s", asked, address, why, said.more(now))

    def _is_still_known(self, scope: Scope, headers: Headers, role: Role) -> bool:
        asker = self._asker(scope, headers)
        return isinstance(asker, Asker) and asker.role is role

    def _asker(self, scope: Scope, headers: Headers) -> Asker | problems.ProblemError | None:
        """Say who asks, or why the request is refused without that. None: the path needs no login."""
        # A browser that opens the page sends no header. The page knows nothing; it asks for the token.
        if scope["path"] in WITHOUT_TOKEN or page.owns(scope["path"]):
            return None
        address = (scope.get("client") or ("?",))[0]
        certificate = scope.get("state", {}).get(CERTIFICATE, "")
        if self._tokens.needs_certificate and not certificate:
            return problems.ProblemError(problems.NO_CERTIFICATE, "this service asks for a client's certificate")
        if self._tokens.are_needed:
            given = headers.get("authorization", "")
            return self._tokens.asker(given) or problems.no_token(given)
        return Asker(escaped(f"certificate of {certificate}" if certificate else f"somebody at {address}"), Role.ADMIN)
