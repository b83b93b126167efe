"""Answers probes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec

from snapreplay.service.control.protocol import Check, StatusDocument
from snapreplay.service.control.vocabulary import one_of

if TYPE_CHECKING:  # the service does not wait for a web framework
    from starlette.types import ASGIApp, Receive, Scope, Send

LIVENESS, READINESS, STARTUP = "/healthz", "/readyz", "/startupz"

WITHOUT_TOKEN = (LIVENESS, READINESS, STARTUP)
"""A platform's probes have none."""


class Probe(msgspec.Struct, frozen=True):
    """The answer to a probe: `ok` if all checks are; the status code says the same (200, 503)."""

    status: Annotated[str, one_of("ok", "failing")]
    checks: tuple[Check, ...]

    @property
    def code(self) -> int:
        return 200 if self.status == "ok" else 503


class Probing(NamedTuple):
    """A probe: its path, and the checks that are its own."""

    path: str
    kind: Literal["live_checks", "ready_checks"]

    def answer(self, documents: Sequence[StatusDocument], *checks: Check) -> Probe:
        """Answer with the services' checks of this kind, behind `checks`. Of several apps, each says its app."""
        for document in documents:
            of_app: tuple[Check, ...] = getattr(document, self.kind)
            if len(documents) > 1:
                app_id = document.facts.app_id
                of_app = tuple(msgspec.structs.replace(each, name=f"{app_id}: {each.name}") for each in of_app)
            checks += of_app
        return Probe("ok" if all(check.ok for check in checks) else "failing", checks)


LIVE = Probing(LIVENESS, "live_checks")
READY = Probing(READINESS, "ready_checks")
STARTED = Probing(STARTUP, "live_checks")


_PLAIN = {each.path: each for each in (LIVE, READY)}
_BODY = {b"content-length", b"transfer-encoding", b"expect"}


class Probes:
    """An ASGI application that answers `/healthz` and `/readyz` itself, so that they wait for nothing. `/startupz` says
    that all of HTTP has started. It is left to `app`, as is a probe that might be refused."""

    def __init__(self, app: ASGIApp, statuses: Callable[[], Sequence[StatusDocument]]) -> None:
        self._app = app
        self._statuses = statuses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        probe = _PLAIN.get(scope["path"])
        if (
            probe is None
            or scope["method"] not in {"GET", "HEAD"}
            or any(name in _BODY for name, _ in scope["headers"])
        ):
            await self._app(scope, receive, send)
            return
        said = probe.answer(self._statuses())
        body = msgspec.json.encode(said)
        headers = [(b"content-length", str(len(body)).encode()), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": said.code, "headers": headers})
        await send({"type": "http.response.body", "body": body})
