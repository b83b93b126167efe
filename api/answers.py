"""Answers that are given again, and HEAD."""

from __future__ import annotations

from typing import NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from snapreplay.api import events, page, state_views
from snapreplay.api.context import STATUS, has_body
from snapreplay.service.control.protocol import StatusDocument, StatusSource

KEPT_MAX = 64
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
