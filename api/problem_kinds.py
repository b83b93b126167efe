"""The words of a problem document, without the framework: `problems` has the kinds and makes the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

MEDIA_TYPE = "application/problem+json"
URN = "urn:snapreplay:problem:"


class ProblemKind(NamedTuple):
    """One kind of problem; `name` ends its `type`."""

    name: str
    status: int
    title: str


class ProblemError(Exception):
    """A problem that a route raises; answered as a problem document.

    Safe: What was refused was not begun, and the service continues. If the answer says that a part was begun, or that
    this is not known, GET /api/v1/operations shows what was begun.
    """

    def __init__(
        self, kind: ProblemKind, detail: str, *, headers: Mapping[str, str] | None = None, **members: object
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = members


def members(problem: ProblemError, path: str) -> dict[str, Any]:
    """Return the members of the document that answers a request for `path`."""
    kind = problem.kind
    return {
        "type": URN + kind.name if kind.name else "about:blank",
        "title": kind.title,
        "status": kind.status,
        "detail": problem.detail,
        "instance": path,
        **problem.members,
    }
