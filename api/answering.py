"""The answers of a service to the process that serves its HTTP."""

from __future__ import annotations

import logging

from snapreplay.service.control import wire
from snapreplay.service.control.counters import EVENTS
from snapreplay.service.control.metrics import counted
from snapreplay.service.control.protocol import Control

log = logging.getLogger("snapreplay.http")


class Answers:
    """Answers for one service. For the thread that has the line."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def to(self, encoded: bytes) -> bytes:
        """Return the answer to a message; empty: it needs none."""
        match wire.question(encoded):
            case wire.Logged() as line:
                line.log()
            case wire.Suspected(process_id, why, silent_seconds):
                self._control.suspect(process_id, why, silent_seconds=silent_seconds)
            case wire.Ended(process_id):
                self._control.ended(process_id)
            case question:
                return self._answered(question)
        return b""

    def _answered(self, question: wire.Question) -> bytes:
        try:
            match question:
                case wire.AskStatus():
                    return wire.frame(self._control.document())
                case wire.AskCounted():
                    return wire.frame(wire.Counted(counted(EVENTS)))
                case command:
                    return wire.frame(wire.Performed(self._control.perform(command)))
        except Exception as error:  # the other end answers with it
            refused = wire.Refused.because(error)
            if refused.error == wire.DEFECT:
                log.exception("a request could not be answered")
            return wire.frame(refused)
