"""Answers probes."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import msgspec

from snapreplay.service.control.protocol import Check, StatusDocument
from snapreplay.service.control.vocabulary import one_of

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

    def answer(self, document: StatusDocument, *checks: Check) -> Probe:
        """Answer with the service's checks of this kind, behind `checks`."""
        checks += getattr(document, self.kind)
        return Probe("ok" if all(check.ok for check in checks) else "failing", checks)


LIVE = Probing(LIVENESS, "live_checks")
READY = Probing(READINESS, "ready_checks")
STARTED = Probing(STARTUP, "live_checks")
