"""Answers probes. The application calls it, and so does the HTTP process before the application is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec

from snapreplay.service.control.framing import UNREADY_SECONDS, Check, Probed
from snapreplay.service.control.vocabulary import one_of

if TYPE_CHECKING:  # probes wait for this module
    from snapreplay.service.control.protocol import StatusDocument

LIVENESS, READINESS, STARTUP = "/healthz", "/readyz", "/startupz"
DEAD_SECONDS = 10.0  # a silent process is frozen, or a handler keeps the interpreter to itself

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
    """A probe: its path, the checks that are its own, and the silence after which the service counts as frozen."""

    path: str
    kind: Literal["live_checks", "ready_checks"]
    silent_seconds_max: float

    def answer(self, document: Probed | StatusDocument | None, age_seconds: float, *checks: Check) -> Probe:
        """Answer with the service's checks of this kind, behind `checks`. HTTP has a process of its own: it answers
        while the service is frozen, and must say so."""
        answers = document is not None and age_seconds < self.silent_seconds_max
        checks += (Check("service process", answers, f"last answer {age_seconds:.1f} s ago"),)
        checks += tuple(getattr(document, self.kind, ()))
        return Probe("ok" if all(check.ok for check in checks) else "failing", checks)


LIVE = Probing(LIVENESS, "live_checks", DEAD_SECONDS)
READY = Probing(READINESS, "ready_checks", UNREADY_SECONDS)
STARTED = Probing(STARTUP, "live_checks", DEAD_SECONDS)
