"""Answers that are given again, and HEAD."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, NamedTuple

from fastapi import Depends, Header, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from snapreplay.api import events, page, state_views
from snapreplay.api.events import StatusEvents
from snapreplay.api.forwarding import Forwarder
from snapreplay.api.guard import ASKER, ASKER_HEADER
from snapreplay.api.last_hour import LastHourRecorder
from snapreplay.api.peers import Peers
from snapreplay.service.control.protocol import StatusDocument, StatusSource

KEPT_MAX = 64
STATUS = "snapreplay.status"
_CONSTANT = "/openapi.json"
_NEGOTIATED = b"accept"


class _Answer(NamedTuple):
    start: Message
    body: bytes


class KeptAnswers:
    """An ASGI middleware that keeps answers. A GET is answered once per status document, whoever asks for it how
    often: a handler costs up to 4 ms, an answer that is kept 0.1 (measured). A HEAD is answered as a GET without
    its body."""

    def __init__(self, app: ASGIApp, source: StatusSource) -> None:
        self._app = app
        self._source = source
        self._document: StatusDocument | None = None
        self._kept: dict[tuple[object, ...], _Answer] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_kept = scope["type"] == "http" and scope["method"] in {"GET", "HEAD"}
        if not is_kept or page.owns(scope["path"]) or scope["path"] == events.PATH:
            await self._app(scope, receive, send)
            return
        is_alone = has_body(scope) or scope["path"].startswith((state_views.PATH, state_views.HISTORY_PATH))
        answer = await (self._made if is_alone else self._answer)(scope, receive)
        await send(answer.start)
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})

    async def _answer(self, scope: Scope, receive: Receive) -> _Answer:
        accept = tuple(value for name, value in scope["headers"] if name == _NEGOTIATED)
        if scope["path"] == _CONSTANT:
            key: tuple[object, ...] = (_CONSTANT,)
            return await self._kept_or_made(key, scope, receive)
        document = await self._source.look()
        if document is not self._document:
            constant = [each for each in self._kept.items() if each[0][0] == _CONSTANT]
            self._document, self._kept = document, dict(constant)
        key = (scope["path"], scope["query_string"], accept)
        return await self._kept_or_made(key, {**scope, STATUS: document}, receive)

    async def _kept_or_made(self, key: tuple[object, ...], scope: Scope, receive: Receive) -> _Answer:
        kept = self._kept  # while the answer is made, a newer document may come
        answer = kept.get(key) or await self._made(scope, receive)
        if len(kept) < KEPT_MAX:
            kept[key] = answer
        return answer

    async def _made(self, scope: Scope, receive: Receive) -> _Answer:
        start: Message = {}
        parts: list[bytes] = []

        async def kept(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
            else:
                parts.append(message.get("body", b""))

        await self._app({**scope, "method": "GET"}, receive, kept)
        return _Answer(start, b"".join(parts))


def has_body(scope: Scope) -> bool:
    """Say whether a body is announced; nothing of it is read."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0"))
        for name, value in scope["headers"]
    )


KEY, FINGERPRINT = "Idempotency-Key", "Snapreplay-Fingerprint"


class ApiContext(NamedTuple):
    source: StatusSource
    status: StatusDocument
    events: StatusEvents
    peers: Peers
    hour: LastHourRecorder
    forwarder: Forwarder
    now: Callable[[], datetime]
    key: str = ""
    """The idempotency key of this request; empty: it has none."""
    fingerprint: str = ""
    asker: str = ""
    """The name of whoever asks."""

    @property
    def passed_on(self) -> Mapping[str, str]:
        """The headers of what is passed on of this request."""
        headers: dict[str, str] = {}
        if self.key:
            headers |= {KEY: self.key, FINGERPRINT: self.fingerprint}
        if self.asker:
            headers[ASKER_HEADER] = self.asker
        return headers


async def context_of(request: Request) -> ApiContext:
    """Return what a route needs."""
    source, *others = request.app.state.context
    # `KeptAnswers` has looked already, to know whether it must ask a handler at all.
    status = request.scope.get(STATUS) or await source.look()
    key = request.headers.get(KEY, "")
    here = ApiContext(source, status, *others)._replace(asker=request.scope.get(ASKER, ""))
    return here._replace(key=key, fingerprint=await _fingerprint(request)) if key else here


async def _fingerprint(request: Request) -> str:
    """Return that of the request as the client made it: a process that passes a part of it on says so."""
    asked = request.url.path.encode() + b"\n" + await request.body()
    return request.headers.get(FINGERPRINT) or hashlib.sha256(asked).hexdigest()[:32]


async def _documented(
    idempotency_key: Annotated[
        str | None, Header(max_length=200, description="A request that is sent again with it is done once.")
    ] = None,
) -> None:
    """Document and check the header; `context_of` takes it."""


Keyed = Depends(_documented)


Here = Annotated[ApiContext, Depends(context_of)]
